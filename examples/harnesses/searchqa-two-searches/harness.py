"""Two searches made by code: the question, then the names in what the first one found. The model only reads."""

import json
import re

from whale.harness import Harness


class TwoSearches(Harness):
    max_turns = 1
    answer_tokens = 16
    tools = [{"name": "search", "parameters": {"query": "string", "k": "integer"}}]

    async def run(self, task, model, tools):
        question = task["question"]
        passages = await tools.search(query=question[:500], k=1)
        names = " ".join(re.findall(r"(?<!^)\b[A-Z][\w'-]*", passages[0]["text"])) if passages else ""
        passages += await tools.search(query=f"{names} {question}"[:480], k=3)
        texts = list({passage["title"]: passage["text"] for passage in passages}.values())[:3]
        messages = [{"role": "system", "content": self.files["prompts/system.md"].strip()}]
        for example in json.loads(self.files["examples.json"]):
            messages += example
        messages.append({"role": "user", "content": "\n".join([*texts, question])})
        return await model.chat(messages, prefix="<answer>", stop=["</answer>"], max_tokens=self.answer_tokens)
