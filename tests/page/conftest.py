"""The page in Debian's chromium, headless, against a real server."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import soundfile

from tests.client.conftest import server, wire
from tests.client.sound_card import wait_until
from tests.server.conftest import anyio_backend, noise, recognizer, start_server

selenium = pytest.importorskip("selenium", reason="needs selenium (the extra `test`)")
from selenium import webdriver  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402

__all__ = ["anyio_backend", "recognizer", "server", "start_server", "wire"]

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--autoplay-policy=no-user-gesture-required",
)
SPEECH_SECONDS = 6


class Page:
    """What a user can see and do."""

    def __init__(self, driver: Any, downloads: Path) -> None:
        self.driver = driver
        self.downloads = downloads

    def open(self, url: str) -> None:
        self.driver.get_log("browser")  # what earlier tests left there
        self.driver.get(url)
        wait_until(lambda: self.run("return document.documentElement.dataset.ready"), "the page is not ready")

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def run_module(self, script: str, *arguments: object) -> Any:
        """An async script that may import the page's modules; what it returns."""
        wrapped = f"""
            const done = arguments[arguments.length - 1];
            (async (...given) => {{ {script} }})(...arguments).then(
                (value) => done({{value}}), (error) => done({{error: String(error.stack ?? error)}}));
        """
        answer = self.driver.execute_async_script(wrapped, *arguments)
        assert "error" not in answer, answer.get("error")
        return answer.get("value")

    def click(self, element: str) -> None:
        self.driver.find_element(By.CSS_SELECTOR, element).click()

    def type(self, element: str, text: str) -> None:
        self.driver.find_element(By.CSS_SELECTOR, element).send_keys(text)

    def text(self, element: str) -> str:
        return str(self.run("return document.querySelector(arguments[0]).innerText", element)).strip()

    @property
    def state(self) -> str:
        return self.text("#state")

    @property
    def problem(self) -> str:
        script = """const shown = document.querySelector("#problem");
            return shown.checkVisibility() ? (shown.querySelector("#problem-text") ?? shown).innerText : "";"""
        return str(self.run(script))

    @property
    def growing(self) -> str:
        return str(self.run("return document.querySelector('.growing')?.innerText ?? ''"))

    @property
    def segments(self) -> list[str]:
        settled = "document.querySelectorAll('#segments li:not(.current) p')"
        return list(self.run(f"return [...{settled}].map((p) => p.innerText)"))

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        try:
            wait_until(condition, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.state=} {self.problem=} {self.driver.get_log('browser')}") from None

    def drop(self, path: Path) -> None:
        """As if a file were dragged onto the page and dropped."""
        data = base64.b64encode(path.read_bytes()).decode()
        script = """
            const bytes = Uint8Array.from(atob(arguments[0]), (letter) => letter.charCodeAt(0));
            const transfer = new DataTransfer();
            transfer.items.add(new File([bytes], arguments[1]));
            const drag = (kind) => dispatchEvent(new DragEvent(kind, {dataTransfer: transfer, cancelable: true}));
            drag("dragenter");
            drag("dragover");
            const shown = document.querySelector("#drop").checkVisibility();
            drag("drop");
            return shown;
        """
        assert self.run(script, data, path.name), "the page does not show where to drop"

    def requests(self) -> list[str]:
        """The addresses of everything that it asked for."""
        entries = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [
            entry["params"] for entry in entries if entry["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated")
        ]
        return [str(params.get("url") or params["request"]["url"]) for params in sent]

    def complaints(self) -> list[str]:
        """What the browser's console holds against the page."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


@pytest.fixture(scope="session")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("speech") / "speech.wav"
    soundfile.write(path, noise(SPEECH_SECONDS, seed=31), 16_000, subtype="PCM_16")
    return path


StartBrowser = Callable[..., Page]


@pytest.fixture(scope="module")
def start_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartBrowser]:
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    drivers: list[Any] = []

    def start(*flags: str, microphone: int = 1, phone: bool = False) -> Page:
        """`microphone`: 1 allows it, 2 denies it, as the user would in the address bar."""
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        downloads = tmp_path_factory.mktemp("downloads")
        for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}", "--window-size=1200,900", *flags):
            options.add_argument(flag)
        allowed = {"profile.default_content_setting_values.media_stream_mic": microphone}
        options.add_experimental_option("prefs", allowed | {"download.default_directory": str(downloads)})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        if phone:
            metrics = {"width": 360, "height": 740, "pixelRatio": 2.0, "touch": True}
            options.add_experimental_option("mobileEmulation", {"deviceMetrics": metrics})
        driver = webdriver.Chrome(options=options, service=Service(chromedriver))
        drivers.append(driver)
        driver.set_script_timeout(60)
        return Page(driver, downloads)

    yield start
    for driver in drivers:
        driver.quit()


@pytest.fixture(scope="module")
def page(start_browser: StartBrowser, speech: Path) -> Page:
    """With a microphone into which the recording is played, again and again."""
    return start_browser("--use-fake-device-for-media-stream", f"--use-file-for-fake-audio-capture={speech}")
