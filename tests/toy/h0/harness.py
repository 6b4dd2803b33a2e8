"""Ask for a query, look it up, answer."""

import json

from whale.harness import Harness


class ToyHarness(Harness):
    max_turns = 2
    entries = 1
    query_tokens = 6
    answer_tokens = 8
    tools = [{"name": "lookup", "parameters": {"query": "string"}}]

    async def run(self, task, model, tools):
        messages = [{"role": "system", "content": self.files["prompts/system.md"].strip()}]
        for example in json.loads(self.files["examples.json"]):
            messages += example
        messages.append({"role": "user", "content": task["question"]})
        asked = await model.chat(messages, max_tokens=self.query_tokens)
        found = await tools.lookup(query=asked.text, k=self.entries)
        notes = "\n".join(note["text"] for note in found)
        messages += [asked, {"role": "user", "content": notes}]
        return await model.chat(messages, max_tokens=self.answer_tokens)
