"""The initial harness: the query forwarded unchanged, one passage cut at 200 tokens, two assistant turns."""

import json
from collections.abc import Mapping
from typing import Any

from whale.harness import Harness, Model, Reply, Tools


class SearchHarness(Harness):
    max_turns = 2
    passages = 1
    passage_words = 150  # about 200 tokens
    query_tokens = 256
    answer_tokens = 256

    async def run(self, task: Mapping[str, Any], model: Model, tools: Tools) -> Reply:
        messages = self.opening(task["question"])
        asked = await model.chat(messages, stop=["</search>"], max_tokens=self.query_tokens)
        query = self.query_of(asked.text)
        found = await tools.search(query=query[:500], k=self.passages) if query else []
        messages += [asked, {"role": "user", "content": self.show(found)}]
        return await model.chat(messages, stop=["</answer>"], max_tokens=self.answer_tokens)

    def opening(self, question: str) -> list[Any]:
        """The system prompt, the worked examples (none yet) and the question."""
        messages: list[Any] = [{"role": "system", "content": self.prompt("system")}]
        for example in json.loads(self.files["examples.json"]):
            messages += example
        return [*messages, {"role": "user", "content": self.prompt("user").replace("{question}", question)}]

    def query_of(self, text: str) -> str:
        """The model's own query, forwarded unchanged."""
        return text.split("<search>")[-1].split("</search>")[0].strip() if "<search>" in text else ""

    def show(self, found: list[dict[str, str]]) -> str:
        """The passages as the model reads them, each cut to a length in words."""
        texts = [f"{p['title']}: {' '.join(p['text'].split()[: self.passage_words])}" for p in found]
        return self.prompt("results").replace("{passages}", "\n".join(texts) or "(nothing was found)")

    def prompt(self, name: str) -> str:
        return self.files[f"prompts/{name}.md"].strip()
