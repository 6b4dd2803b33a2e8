"""The initial harness: the model writes a query, reads one passage, and answers."""

import json
from collections.abc import Mapping
from typing import Any

from whale.harness import Harness, Model, Reply, Tools


class SearchHarness(Harness):
    max_turns = 2
    passages = 1
    passage_words = 200
    query_tokens = 32
    answer_tokens = 32

    async def run(self, task: Mapping[str, Any], model: Model, tools: Tools) -> Reply:
        messages = self.opening(task["question"])
        asked = await model.chat(messages, stop=["</search>"], max_tokens=self.query_tokens)
        found = await tools.search(query=self.query_of(asked.text), k=self.passages)
        messages += [asked, {"role": "user", "content": self.show(found)}]
        return await model.chat(messages, stop=["</answer>"], max_tokens=self.answer_tokens)

    def opening(self, question: str) -> list[Any]:
        """The system prompt, the worked examples and the question."""
        system = self.files["prompts/system.md"].strip()
        user = self.files["prompts/user.md"].strip().replace("{question}", question)
        examples = json.loads(self.files["examples.json"])
        messages: list[Any] = [{"role": "system", "content": system}]
        for example in examples:
            messages += example
        return [*messages, {"role": "user", "content": user}]

    def query_of(self, text: str) -> str:
        """The model's own query, forwarded unchanged."""
        return text.split("<search>")[-1].split("</search>")[0].strip()

    def show(self, found: list[dict[str, str]]) -> str:
        """The passages as the model reads them, each cut to a length in words."""
        template = self.files["prompts/passage.md"].strip()
        shown = []
        for passage in found:
            text = " ".join(passage["text"].split()[: self.passage_words])
            shown.append(template.replace("{title}", passage["title"]).replace("{text}", text))
        return "\n".join(shown)
