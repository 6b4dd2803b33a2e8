"""Messages to token ids and back: the only place where text is tokenised.

A chat template is rendered over placeholders, never over the texts themselves, and the pieces are tokenised
apart. Three things follow, whatever the model:

- The ids of an earlier reply are spliced in as they were sampled; nothing is tokenised twice.
- A message cannot forge a special token: `<|im_end|>` in a tool's text is plain characters.
- The prompt of a later turn begins with the earlier turn's prompt and output, if its messages begin with the
  earlier ones (and the template renders a turn of the past as it opened it).

Pieces are tokenised apart on byte-level vocabularies without a trace; a SentencePiece vocabulary that adds a
space in front of every text adds it in front of each piece.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whale.errors import UsageError

ROLES = frozenset({"system", "user", "assistant", "tool"})

_PLACE = re.compile(r"WHALEMESSAGE(\d{6})END")
_FIXED_DATE = "26 Jul 2024"
"""What templates that print the day get (Llama 3.1's own default): a prompt must not change overnight."""
_CACHED_TEXTS = 4096
_CACHED_TEMPLATES = 1024


class ChatError(ValueError):
    """Messages that cannot be encoded: the harness's fault. The text says why."""


@dataclass(frozen=True, slots=True)
class ReplyRecord:
    """An earlier reply of the model, standing in `messages` as an assistant turn."""

    prefix_ids: tuple[int, ...]
    """The ids that opened the turn, `EncodedPrompt.prefix_ids`."""
    output_ids: tuple[int, ...]
    """The ids that were sampled, the stop token included if there was one."""


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt; its last `prefix_len` ids are the opened assistant prefix."""

    ids: tuple[int, ...]
    prefix_len: int

    @property
    def prefix_ids(self) -> tuple[int, ...]:
        """The ids of the assistant prefix."""
        return self.ids[len(self.ids) - self.prefix_len :]


Message = Mapping[str, str] | ReplyRecord

_Part = str | ReplyRecord
_Turn = tuple[str, tuple[_Part, ...]]
"""Role, and what the turn says."""
_Piece = str | int
"""Of a rendered template: its own text, or the index of the turn that stands there."""


class ChatCodec:
    """Encode messages by a tokenizer's chat template. Safe to share between threads.

    `tokenizer` is a transformers tokenizer with a chat template; UsageError without one.
    `stop_ids` are ids that end a turn besides the tokenizer's EOS and the template's own end token.
    """

    def __init__(self, tokenizer: Any, stop_ids: Iterable[int] = ()) -> None:
        # A fast tokenizer refuses a second thread ("Already borrowed"): every use is behind this lock.
        self._lock = threading.RLock()
        self._tokenizer = tokenizer
        self._templates: dict[tuple[str, ...], tuple[_Piece, ...] | str] = {}
        self._shown: dict[int, str] = {}
        self._texts: OrderedDict[tuple[str, bool], tuple[int, ...]] = OrderedDict()
        if not getattr(tokenizer, "chat_template", None):
            raise UsageError(
                f"model {getattr(tokenizer, 'name_or_path', '')!r} has no chat template: "
                "use an instruction-tuned model, or add chat_template.jinja to its folder"
            )
        self.stop_ids: frozenset[int] = frozenset({*stop_ids, *self._own_stop_ids()})
        """Ids that end an assistant turn."""

    def encode(self, messages: Sequence[Message], prefix: str = "") -> EncodedPrompt:
        """Return the ids of `messages` with an assistant turn opened by `prefix`.

        Raises ChatError for a malformed message, or for messages that the template refuses in every form.
        """
        if not messages:
            raise ChatError("there are no messages")
        if not isinstance(prefix, str):
            raise ChatError("the prefix is not a string")
        turns = [_turn(message) for message in messages]
        with self._lock:
            turns, pieces = self._fit(turns)
            ids: list[int] = []
            ended = False
            for piece in pieces:
                if isinstance(piece, str):
                    own = self._ids(piece, special=True)
                    # The model sampled its stop token: the template's own would be a second one.
                    ids.extend(own[1:] if ended and own and own[0] in self.stop_ids else own)
                    ended = False
                else:
                    ended = self._extend(ids, turns[piece][1])
            prefix_ids = self._ids(prefix, special=False)
        return EncodedPrompt((*ids, *prefix_ids), len(prefix_ids))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, special tokens skipped."""
        with self._lock:
            text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def decode_token(self, token: int) -> str:
        """Return the text of one id, remembered: "" for a special token, U+FFFD for part of a character."""
        text = self._shown.get(token)
        if text is None:
            text = self._shown[token] = self.decode((token,))
        return text

    def _extend(self, ids: list[int], parts: Sequence[_Part]) -> bool:
        """Append what a turn says; return whether it ends with a sampled stop token."""
        ended = False
        for part in parts:
            if isinstance(part, str):
                ids.extend(self._ids(part, special=False))
                ended = False
            else:
                ids.extend(part.prefix_ids)
                ids.extend(part.output_ids)
                ended = bool(part.output_ids) and part.output_ids[-1] in self.stop_ids
        return ended

    def _ids(self, text: str, *, special: bool) -> tuple[int, ...]:
        """Tokenise one piece; special tokens are recognised in the template's own text only."""
        if not text:
            return ()
        key = (text, special)
        found = self._texts.get(key)
        if found is None:
            found = tuple(
                self._tokenizer(text, add_special_tokens=False, split_special_tokens=not special)["input_ids"]
            )
            self._texts[key] = found
            if len(self._texts) > _CACHED_TEXTS:
                self._texts.popitem(last=False)
        else:
            self._texts.move_to_end(key)
        return found

    def _fit(self, turns: list[_Turn]) -> tuple[list[_Turn], tuple[_Piece, ...]]:
        """Render, retrying in forms for stricter templates: without a system turn, then alternating."""
        refusal = ""
        for form in (turns, _without_system(turns), _alternating(_without_system(turns))):
            pieces = self._render(tuple(role for role, _ in form))
            if isinstance(pieces, str):
                refusal = refusal or pieces
            # A template that drops the system turn without a word has refused it as well.
            elif all(role != "system" or index in pieces for index, (role, _) in enumerate(form)):
                return form, pieces
        raise ChatError(f"the chat template refuses these messages: {refusal or 'it drops the system message'}")

    def _render(self, roles: tuple[str, ...]) -> tuple[_Piece, ...] | str:
        """Render the template for these roles, once; a string is the template's refusal."""
        found = self._templates.get(roles)
        if found is None:
            conversation = [
                {"role": role, "content": f"WHALEMESSAGE{index:06d}END"} for index, role in enumerate(roles)
            ]
            try:
                text = self._tokenizer.apply_chat_template(
                    conversation, tokenize=False, add_generation_prompt=True, date_string=_FIXED_DATE
                )
            except Exception as error:  # a template raises what it likes, Jinja's own errors included
                found = str(error).strip() or type(error).__name__
            else:
                # re.split with one group alternates text and placeholder.
                split = _PLACE.split(text)
                found = tuple(int(piece) if odd % 2 else piece for odd, piece in enumerate(split))
            if len(self._templates) >= _CACHED_TEMPLATES:
                self._templates.clear()
            self._templates[roles] = found
        return found

    def _own_stop_ids(self) -> set[int]:
        """EOS, and the special token that the template puts behind an assistant turn."""
        found = set()
        if self._tokenizer.eos_token_id is not None:
            found.add(int(self._tokenizer.eos_token_id))
        pieces = self._render(("user", "assistant", "user"))
        if not isinstance(pieces, str) and 1 in pieces:
            behind = pieces[pieces.index(1) + 1]
            ids = self._ids(behind, special=True) if isinstance(behind, str) else ()
            if ids and ids[0] in set(self._tokenizer.all_special_ids):
                found.add(ids[0])
        return found


def _turn(message: Message) -> _Turn:
    if isinstance(message, ReplyRecord):
        return "assistant", (message,)
    if not isinstance(message, Mapping):
        raise ChatError("a message is neither a mapping nor a reply")
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise ChatError(f"unknown role {str(role)[:40]!r}: use {', '.join(sorted(ROLES))}")
    if not isinstance(content, str):
        raise ChatError(f"the content of the {role} message is not a string")
    return role, (content,)


def _without_system(turns: Sequence[_Turn]) -> list[_Turn]:
    """Say what the system says at the head of the next user turn."""
    said: list[_Turn] = []
    held: tuple[_Part, ...] = ()
    for role, parts in turns:
        if role == "system":
            held = _joined(held, parts)
        elif role == "user":
            said.append((role, _joined(held, parts)))
            held = ()
        else:
            said.append((role, parts))
    return [*said, ("user", held)] if held else said


def _alternating(turns: Sequence[_Turn]) -> list[_Turn]:
    """Join neighbours of one role, a tool's turn being the user's, and begin with the user."""
    said: list[_Turn] = []
    for role, parts in turns:
        role = "user" if role == "tool" else role
        if said and said[-1][0] == role:
            said[-1] = (role, _joined(said[-1][1], parts))
        else:
            said.append((role, parts))
    return [("user", ("",)), *said] if said and said[0][0] == "assistant" else said


def _joined(first: tuple[_Part, ...], second: tuple[_Part, ...]) -> tuple[_Part, ...]:
    return (*first, "\n\n", *second) if first and second else first or second
