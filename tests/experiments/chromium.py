"""A headless Chromium that tests look at pages with, driven over its DevTools protocol."""

import asyncio
import base64
import json
import shutil
import subprocess
import time
from pathlib import Path

import aiohttp
from waiting import PATIENCE

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-extensions", "--remote-debugging-port=0"),
)
_CODES = {"ArrowRight": 39, "ArrowLeft": 37, "Home": 36, "End": 35, "Tab": 9, "Enter": 13}


class Chromium:
    """One page; used in a `with`.

    Attributes:
        complaints: what the console, the loader and the security policy said.
        requests: addresses that were asked for, but for data inside the page.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        self.complaints, self.requests = [], []
        self._events, self._number = [], 0

    def __enter__(self):
        profile = self.folder / "profile"
        command = [PROGRAM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._loop = asyncio.new_event_loop()
        try:
            self._loop.run_until_complete(self._connect(profile / "DevToolsActivePort"))
        except BaseException:
            self.__exit__()
            raise
        return self

    async def _connect(self, port_file):
        until = time.monotonic() + PATIENCE
        while not (port_file.exists() and len(port_file.read_text().split()) == 2):
            if time.monotonic() > until:
                raise TimeoutError("the browser did not start")
            await asyncio.sleep(0.1)
        port = port_file.read_text().split()[0]
        self._session = aiohttp.ClientSession()
        async with self._session.get(f"http://127.0.0.1:{port}/json") as answer:
            (target,) = [t for t in await answer.json() if t["type"] == "page"]
        address = target["webSocketDebuggerUrl"]
        self._socket = await self._session.ws_connect(address, max_msg_size=2**28)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self._send(f"{domain}.enable")

    def __exit__(self, *_):
        async def close():
            for name in ("_socket", "_session"):
                if hasattr(self, name):
                    await getattr(self, name).close()

        self._loop.run_until_complete(close())
        self._loop.close()
        self._process.terminate()
        self._process.wait(PATIENCE)

    async def _send(self, method, **parameters):
        self._number += 1
        number = self._number
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            told = json.loads((await self._socket.receive(timeout=PATIENCE)).data)
            if told.get("id") == number:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']}")
                return told["result"]
            self._heard(told)

    def _heard(self, told):
        method, given = told.get("method"), told.get("params", {})
        self._events.append(method)
        if method == "Runtime.consoleAPICalled":
            self.complaints.append(str(given["args"]))
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(given["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.complaints.append(given["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            address = given["request"]["url"]
            if not address.startswith("data:"):
                self.requests.append(address)

    def send(self, method, **parameters):
        return self._loop.run_until_complete(self._send(method, **parameters))

    def open(self, path, fragment=""):
        self._events.clear()
        self.send("Page.navigate", url=Path(path).resolve().as_uri() + fragment)
        until = time.monotonic() + PATIENCE
        while "Page.loadEventFired" not in self._events and time.monotonic() < until:
            self.send("Runtime.evaluate", expression="0")
        assert self.evaluate("document.readyState") == "complete"

    def evaluate(self, expression):
        """The value of a JavaScript expression."""
        made = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in made, made
        return made["result"].get("value")

    def viewport(self, width, height=800):
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip

    def media(self, media="screen", scheme="light"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", media=media, features=features)

    def press(self, key, modifiers=0):
        told = {"key": key, "code": key, "windowsVirtualKeyCode": _CODES[key]}
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, modifiers=modifiers, **told, **text)

    def click(self, selector):
        """Clicks on the middle of an element, where it is on the screen."""
        place = self.evaluate(
            "(() => { const e = document.querySelector(" + json.dumps(selector) + ");"
            "e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        where = {"x": place[0], "y": place[1], "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, **where)

    def screenshot(self, path, *, whole=True):
        made = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(made["data"]))
