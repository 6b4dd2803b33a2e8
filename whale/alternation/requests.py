"""Steering a run from any process: a request is an event in the control stream, which its runner answers."""

import getpass
import os
import uuid

from whale.errors import WhaleError
from whale.events import EventLog, LogError, NewEvent
from whale.events import types as ev


def user() -> str:
    """Who steers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def append_request(log: EventLog, event: ev.Event) -> str:
    """Record a control request; returns its key, under which `answer_key` finds the runner's answer.

    Raises:
        WhaleError: it could not be recorded.
    """
    kind = (
        type(event)
        .__name__.removesuffix("Requested")
        .removesuffix("Submitted")
        .removesuffix("Added")
        .removesuffix("Given")
        .lower()
    )
    key = f"control/{kind}/{uuid.uuid4().hex[:12]}"
    try:
        log.append("control", [NewEvent(event=event, key=key)], expected_version=None)
    except LogError as error:
        raise WhaleError(f"the request could not be recorded: {error}") from error
    return key


def answer_key(request: str) -> str:
    """Key of the runner's answer to a request, in the run's stream."""
    return f"handled/{request}"
