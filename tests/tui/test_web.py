"""`whale web`: who is let in. The app itself is the one that the other tests look at."""

import asyncio
import base64
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.runs import command, environment
from whale.address import is_loopback
from whale.errors import UsageError
from whale.tui.web import check_address


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    check_address(host, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org"])
def test_any_other_address_needs_a_long_token(host: str) -> None:
    for token in (None, "", "short"):
        with pytest.raises(UsageError, match="WHALE_WEB_TOKEN"):
            check_address(host, token)
    check_address(host, "x" * 16)


def status(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_the_server_asks_for_its_token_and_refuses_other_sites_pages(tmp_path: Path) -> None:
    pytest.importorskip("textual_serve")
    port = free_port()
    env = {**environment(tmp_path), "WHALE_WEB_TOKEN": "a-token-of-many-letters"}
    server = subprocess.Popen(command("web", "--port", str(port)), env=env, cwd=tmp_path, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}/"
    try:
        for _ in range(600):
            try:
                assert status(url) == 403
                break
            except (urllib.error.URLError, ConnectionError):
                assert server.poll() is None
                time.sleep(0.1)
        assert status(url + "?token=wrong") == 403
        with urllib.request.urlopen(url + "?token=a-token-of-many-letters", timeout=10) as page:
            policy = page.headers["Content-Security-Policy"]
        assert "http" not in policy, "nothing is loaded from elsewhere, so that it opens without a network"
        assert status(url + "?token=a-token-of-many-letters") == 200
        assert status(url, Cookie="whale-token=a-token-of-many-letters") == 200
        assert status(url + "?token=a-token-of-many-letters", Origin="http://evil.example") == 403
        assert status(url + "ws") == 403
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=30)


aiohttp = pytest.importorskip("aiohttp")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_the_app_opens_in_a_browser_and_a_key_works(made_up_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("textual_serve")
    assert CHROMIUM is not None
    port, debug = free_port(), free_port()
    server = subprocess.Popen(
        command("web", str(made_up_run), "--port", str(port)), env=environment(tmp_path), cwd=tmp_path,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    browser = None
    try:
        for _ in range(600):
            try:
                status(f"http://127.0.0.1:{port}/")
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        browser = subprocess.Popen(
            [
                CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
                f"--remote-debugging-port={debug}", "--remote-allow-origins=*", "--window-size=1200,800", "about:blank",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        seen = asyncio.run(asyncio.wait_for(_browse(debug, f"http://127.0.0.1:{port}/"), 300))
        assert "held-out success" in seen[0]
        assert "lineage" in seen[1]
    finally:
        if browser is not None:
            os.killpg(browser.pid, signal.SIGKILL)
            browser.wait()
        server.send_signal(signal.SIGINT)
        server.wait(timeout=30)


async def _browse(port: int, url: str) -> list[str]:
    """What the page's terminal was sent until a word came, before and after the key 3.

    Through Chromium's own protocol; the terminal is painted on a canvas, so its frames are what can be read.
    """
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as answer:
                    target = await answer.json()
                    break
            except aiohttp.ClientError:
                await asyncio.sleep(0.2)
        async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as protocol:
            sent = 0

            async def call(method: str, **parameters: object) -> None:
                nonlocal sent
                sent += 1
                await protocol.send_json({"id": sent, "method": method, "params": parameters})

            async def until(word: str) -> str:
                seen = ""
                while word not in seen:
                    try:
                        message = json.loads((await asyncio.wait_for(protocol.receive(), 60)).data)
                    except TimeoutError:
                        raise AssertionError(f"no {word!r} in {seen[-3000:]!r}") from None
                    if message.get("method") == "Network.webSocketFrameReceived":
                        frame = message["params"]["response"]
                        data = frame["payloadData"]
                        raw = base64.b64decode(data) if frame["opcode"] == 2 else data.encode()
                        seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", raw.decode("utf-8", "replace"))
                return seen

            await call("Network.enable")
            await call("Page.navigate", url=url)
            first = await until("held-out success")
            await call("Page.bringToFront")
            for kind in ("mousePressed", "mouseReleased"):  # a click gives the terminal the keyboard
                await call("Input.dispatchMouseEvent", type=kind, x=600, y=700, button="left", clickCount=1)
            digit = {"key": "3", "code": "Digit3", "windowsVirtualKeyCode": ord("3")}
            await call("Input.dispatchKeyEvent", type="keyDown", text="3", **digit)
            await call("Input.dispatchKeyEvent", type="keyUp", **digit)
            return [first, await until("19 candidates")]
