"""The model writes each calculation up to its "="; the Python tool fills in the result."""

import json
import re

from whale.harness import Harness


class Calculator(Harness):
    max_turns = 6
    step_tokens = 24
    answer_tokens = 8
    tools = [{"name": "python", "parameters": {"code": "string"}}]

    async def run(self, task, model, tools):
        messages = self.opening(task["question"])
        written = ""
        for _ in range(self.max_turns - 1):
            reply = await model.chat(messages, prefix=written, stop=["=", "\\boxed{"], max_tokens=self.step_tokens)
            written += reply.text
            if written.endswith("\\boxed{"):
                break
            result = await self.calculate(written, tools)
            if result is None:
                break
            written += f" {result}."
        if not written.endswith("\\boxed{"):
            written += " The answer is \\boxed{"
        return await model.chat(messages, prefix=written, stop=["}"], max_tokens=self.answer_tokens)

    async def calculate(self, written, tools):
        """The value of what stands before the last "=", or None if that is no calculation."""
        found = re.search(r"(\d+(?: ?[-+*/] ?\d+)+) ?=$", written)
        if found is None:
            return None
        ran = await tools.python(code=f"x = {found.group(1)}\nint(x) if x == int(x) else x")
        return ran["output"].strip() or None

    def opening(self, question):
        messages = [{"role": "system", "content": self.files["prompts/system.md"].strip()}]
        for example in json.loads(self.files["examples.json"]):
            messages += example
        return [*messages, {"role": "user", "content": question}]
