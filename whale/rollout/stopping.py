"""Stop strings: whether the text sampled so far contains one."""

from collections.abc import Sequence

from whale.rollout.chat import ChatCodec


class StopScanner:
    """Watches one row's tokens for stop strings, across token borders.

    A stop string of n bytes ends inside the last n tokens that show text, so only those are decoded, and
    only when the newest token shows the stop string's last character.
    """

    def __init__(self, chat: ChatCodec, stop: Sequence[str]) -> None:
        self._chat = chat
        self._stop = tuple(text for text in stop if text)
        # One more than needed: some decoders drop a space in front of the first token.
        self._reach = 1 + max((len(text.encode()) for text in self._stop), default=0)
        self._shown: list[int] = []

    def push(self, token: int) -> bool:
        """Take the next token; return whether it completes a stop string."""
        text = self._chat.decode_token(token)
        if not text:
            return False
        self._shown.append(token)
        # Part of a character decodes to U+FFFD: it may complete any character that is not ASCII.
        candidates = [stop for stop in self._stop if stop[-1] in text or ("\ufffd" in text and not stop[-1].isascii())]
        if not candidates:
            return False
        tail = self._chat.decode(self._shown[-self._reach :])
        return any(stop in tail for stop in candidates)


def stopped_at(chat: ChatCodec, stop: Sequence[str], ids: Sequence[int]) -> int | None:
    """How many of `ids` there are when the first stop string is complete; None if none is."""
    if not any(stop):
        return None
    scanner = StopScanner(chat, stop)
    return next((at for at, token in enumerate(ids, 1) if scanner.push(token)), None)
