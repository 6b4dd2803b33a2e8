"""One question to a model, at temperature 0, through the provider's own SDK, which retries with backoff."""

import os
from dataclasses import dataclass
from typing import Any, Protocol

from whale.domains.judge.options import JudgeOptions
from whale.errors import UsageError
from whale.rollout.errors import VerifierFault


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said, and its tokens as the server counted them."""

    text: str
    input_tokens: int
    output_tokens: int


class JudgeModel(Protocol):
    """A model that answers a prompt. May be asked from several threads."""

    def ask(self, prompt: str) -> Answer:
        """Raises VerifierFault if there is no answer after all retries."""
        ...


def connect(options: JudgeOptions) -> JudgeModel:
    """The model of the options. Raises UsageError for a key or a package that is missing."""
    key = os.environ.get(options.key_variable, "")
    if not key and not (options.provider == "openai" and options.base_url):
        raise UsageError(f"judge: the environment variable {options.key_variable} must hold the API key")
    return (_Anthropic if options.provider == "anthropic" else _OpenAI)(options, key)


class _Anthropic:
    def __init__(self, options: JudgeOptions, key: str) -> None:
        import anthropic

        self._options = options
        self._error = anthropic.AnthropicError
        self._client = anthropic.Anthropic(
            api_key=key,
            base_url=options.base_url or None,
            timeout=options.timeout,
            max_retries=options.retries,
        )

    def ask(self, prompt: str) -> Answer:
        options = self._options
        try:
            message = self._client.messages.create(
                model=options.model,
                max_tokens=options.max_tokens,
                messages=[{"role": "user", "content": prompt}],
                extra_body={"temperature": 0},  # the SDK's own argument is gone, the protocol's field is not
            )
        except self._error as error:
            raise _fault(options, error) from error
        text = "".join(block.text for block in message.content if block.type == "text")
        return Answer(text, message.usage.input_tokens, message.usage.output_tokens)


class _OpenAI:
    def __init__(self, options: JudgeOptions, key: str) -> None:
        try:
            import openai
        except ImportError:
            raise UsageError(
                "judge: the provider openai needs its package: pip install 'whale-evolve[judge]'"
            ) from None
        self._options = options
        self._error = openai.OpenAIError
        self._client = openai.OpenAI(
            api_key=key or "none",
            base_url=options.base_url or None,
            timeout=options.timeout,
            max_retries=options.retries,
        )

    def ask(self, prompt: str) -> Answer:
        options = self._options
        try:
            done = self._client.chat.completions.create(
                model=options.model,
                max_tokens=options.max_tokens,
                temperature=0,
                messages=[{"role": "user", "content": prompt}],
            )
        except self._error as error:
            raise _fault(options, error) from error
        if not done.choices:
            raise VerifierFault(f"the judge {options.model} sent a reply without a choice")
        usage = done.usage
        return Answer(
            done.choices[0].message.content or "",
            usage.prompt_tokens if usage else 0,
            usage.completion_tokens if usage else 0,
        )


def _fault(options: JudgeOptions, error: Any) -> VerifierFault:
    where = options.base_url or f"{options.provider}'s own server"
    reason = " ".join(str(error).split())[:300]
    return VerifierFault(
        f"the judge {options.model} at {where} gave no verdict: {type(error).__name__}: {reason}; "
        "nothing of this micro-batch counts, `whale resume` asks again"
    )
