"""`whale serve`: a real server process, asked by the real `openai` client, with the harness in between."""

import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest

from tests.runs import command, environment
from whale.alternation.run_folder import RunFolder
from whale.errors import UsageError
from whale.pair.server import check_address


class Server:
    """A `whale serve` process that has said where it is."""

    def __init__(self, runs: Path, *arguments: str, **env: str) -> None:
        self.process = subprocess.Popen(
            command("serve", *arguments, "--port", "0"),
            stderr=subprocess.PIPE, text=True, cwd=runs, env={**environment(runs), **env},
        )  # fmt: skip
        self.said = ""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line
            if found := re.search(r"http://[^ ]+:(\d+)/v1", line):
                self.port = int(found[1])
                return
        raise AssertionError(self.said)

    def client(self, key: str = "none") -> openai.OpenAI:
        return openai.OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key=key, max_retries=0, timeout=120)

    def raw(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture(scope="module")
def server(toy_runs: Path) -> Iterator[Server]:
    running = Server(toy_runs, "toy")
    yield running
    if running.process.poll() is None:
        running.end()


def create(client: openai.OpenAI, **body: Any) -> Any:
    """As a user calls it, without the client's overloads."""
    completions: Any = client.chat.completions
    return completions.create(**body)


QUESTION = [{"role": "user", "content": "what is it?"}]


def test_a_run_whose_engine_has_two_replicas_answers_as_one_engine_and_leaves_no_process(
    server: Server, toy_runs: Path, tmp_path: Path
) -> None:
    shutil.copytree(toy_runs / "toy", tmp_path / "toy")
    config = tmp_path / "toy" / "whale.toml"
    config.write_text(config.read_text().replace("replicas = 1", "replicas = 2"), encoding="utf-8")
    two = Server(tmp_path, "toy")
    started = psutil.Process(two.process.pid).children(recursive=True)
    assert len([process for process in started if "whale.rollout.replica_worker" in process.cmdline()]) == 2
    answers = [
        create(on.client(), model="toy", messages=QUESTION, temperature=0.0, seed=1).choices[0].message.content
        for on in (server, two)
    ]
    assert answers[0] == answers[1]
    assert two.end() == 0
    assert not psutil.wait_procs(started, timeout=60)[1]


def test_the_openai_client_gets_the_answer_that_the_harness_chose(server: Server) -> None:
    client = server.client()
    assert [model.id for model in client.models.list()] == ["toy"]
    assert client.models.retrieve("toy").owned_by == "whale"
    one = create(client, model="toy", messages=QUESTION, seed=7)
    assert one.choices[0].message.role == "assistant"
    assert one.choices[0].finish_reason in ("stop", "length")
    # The toy harness asks the model twice and calls its tool in between: it was there.
    about = one.model_extra["whale"]
    assert (about["turns"], about["tool_calls"] >= 1) == (2, True)
    assert one.usage.completion_tokens > 0
    again = create(client, model="toy", messages=QUESTION, seed=7)
    assert again.choices[0].message.content == one.choices[0].message.content


def test_a_stream_brings_the_same_answer_and_its_usage(server: Server) -> None:
    client = server.client()
    whole = create(client, model="toy", messages=QUESTION, seed=3)
    chunks = list(
        create(client, model="toy", messages=QUESTION, seed=3, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason
    assert chunks[-1].usage == whole.usage


def test_an_exported_folder_answers_as_its_run_does(server: Server, toy_runs: Path, tmp_path: Path) -> None:
    subprocess.run(
        command("export", "toy", "-o", str(tmp_path / "pair")), env=environment(toy_runs), check=True, cwd=toy_runs
    )
    outside = Server(tmp_path, str(tmp_path / "pair"))
    try:
        for seed in (1, 2, 3):
            inside_, outside_ = (
                create(s.client(), model=name, messages=QUESTION, seed=seed)
                for s, name in ((server, "toy"), (outside, "pair"))
            )
            assert inside_.choices[0].message.content == outside_.choices[0].message.content
            assert inside_.usage == outside_.usage
            assert inside_.system_fingerprint == outside_.system_fingerprint
    finally:
        assert outside.end(signal.SIGTERM) == 0


def test_questions_that_wait_together_are_all_answered(server: Server) -> None:
    import concurrent.futures

    client = server.client()

    def ask(number: int) -> str | None:
        messages = [{"role": "user", "content": f"question {number}"}]
        done = create(client, model="toy", messages=messages)
        content: str | None = done.choices[0].message.content
        return content

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert all(isinstance(text, str) for text in pool.map(ask, range(12)))


@pytest.mark.parametrize(
    "change, status, told",
    [
        ({"messages": []}, 400, "one user message"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, 400, "last message must be the user's"),
        ({"messages": [{"role": "system", "content": "x"}, *QUESTION]}, 400, "--last-only"),
        ({"messages": [{"role": "user", "content": " "}]}, 400, "empty"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "must be text"),
        ({"model": "other"}, 404, "this server has 'toy'"),
        ({"n": 2}, 400, "n: not supported"),
        ({"tools": [{}]}, 400, "tools: not supported"),
        ({"temperature": 9}, 400, "from 0 to 2"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"seed": True}, 400, "seed"),
        ({"messages": [{"role": "user", "content": "long " * 20_000}]}, 400, "too long"),
        ({"max_tokens": 1}, 422, "token_limit"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_sentence(
    change: dict[str, object], status: int, told: str, server: Server
) -> None:
    body = {"model": "toy", "messages": QUESTION, **change}
    with pytest.raises(openai.APIStatusError) as caught:
        create(server.client(), **body)
    assert caught.value.status_code == status
    assert told in str(caught.value)
    assert isinstance(caught.value.body, dict)
    assert "\n" not in caught.value.body["message"].strip()


def test_a_failure_inside_a_stream_reaches_the_client(server: Server) -> None:
    with pytest.raises(openai.APIError, match="token_limit"):
        list(create(server.client(), model="toy", messages=QUESTION, max_tokens=1, stream=True))


def test_broken_and_foreign_requests_are_refused(server: Server) -> None:
    good = json.dumps({"model": "toy", "messages": QUESTION}).encode()
    path = "/v1/chat/completions"
    assert server.raw("POST", path, b"{")[0] == 400
    assert server.raw("POST", path, b"[" * 100_000)[0] == 400
    assert server.raw("POST", path, b" " * (2**20 + 1))[0] == 413
    assert server.raw("POST", path, good, **{"Content-Type": "text/plain"})[0] == 415
    assert server.raw("POST", path, good, Origin="http://evil.example")[0] == 403
    assert server.raw("POST", path, good, Host="evil.example")[0] == 403, "a name that was made to point here"
    assert server.raw("GET", "/v1/nothing")[0] == 404
    status, body = server.raw("PUT", path)
    assert (status, "error" in json.loads(body)) == (405, True)
    assert server.raw("GET", "/health")[0] == 200


def test_a_token_is_asked_for(toy_runs: Path) -> None:
    running = Server(toy_runs, "toy", "--last-only", WHALE_SERVE_TOKEN="a-token-of-some-length")
    try:
        with pytest.raises(openai.AuthenticationError):
            running.client("another").models.list()
        client = running.client("a-token-of-some-length")
        messages = [{"role": "system", "content": "be brief"}, *QUESTION]
        assert create(client, model="toy", messages=messages).choices
        assert running.raw("GET", "/health")[0] == 200
    finally:
        assert running.end() == 0


def test_nobody_else_is_served_without_a_token() -> None:
    check_address("127.0.0.1", None)
    check_address("::1", None)
    check_address("0.0.0.0", "a-token-of-some-length")
    with pytest.raises(UsageError, match="WHALE_SERVE_TOKEN"):
        check_address("0.0.0.0", None)
    with pytest.raises(UsageError, match="16 characters"):
        check_address("0.0.0.0", "short")


def test_a_taken_port_is_a_usage_error(toy_runs: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = subprocess.run(
            command("serve", "toy", "--port", str(taken.getsockname()[1])),
            capture_output=True, text=True, env=environment(toy_runs), cwd=toy_runs,
        )  # fmt: skip
    assert done.returncode == 2
    assert "in use" in done.stderr


def test_serving_records_nothing_in_the_run(server: Server, toy_runs: Path) -> None:
    with RunFolder(toy_runs / "toy").open_log(readonly=True) as log:
        before = log.head().hash
        create(server.client(), model="toy", messages=QUESTION)
        assert log.head().hash == before
