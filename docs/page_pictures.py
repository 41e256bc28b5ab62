"""Makes the pictures of docs/report.md and docs/watch.md: `python docs/page_pictures.py` (needs fedkeel[browser], chromium).

Two or three minutes: the comparison that docs/report.md names, its page, and the live page of a comparison that goes on.
"""

from __future__ import annotations

import io
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

PICTURES = Path(__file__).parent / "pictures"
COMPARE = shlex.split(
    "compare --method fedavg --method scaffold --method fedinit(0.1) --method feddyn --probe drift --probe divergence "
    "--probe diversity --probe cosine --probe losses --probe excessrisk --probe clientaccuracy --probe layers "
    "--rounds 40 --seeds 3 --target 0.85"
)
LIVE = shlex.split(
    "compare --method fedavg --method scaffold --rounds 400 --seeds 1 --faults Faults(drop=0.02)"
)
DESKTOP, PHONE = {"width": 1280, "height": 1100}, {"width": 390, "height": 844}


def fedkeel(*words: str) -> list[str]:
    """Return the command line."""
    return [sys.executable, "-u", "-m", "fedkeel", *words]


def take(
    browser: Any, address: str, name: str, view: dict[str, int], *, dark: bool = False, wait: float = 3.0
) -> None:
    """Open a page and keep what is in view."""
    context = browser.new_context(
        viewport=view, color_scheme="dark" if dark else "light", device_scale_factor=2 if view == PHONE else 1
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector(".plot .scatterlayer", timeout=60_000)
    time.sleep(wait)  # plotly draws what is in view first
    picture = Image.open(io.BytesIO(page.screenshot()))
    context.close()
    picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        PICTURES / f"{name}.png", optimize=True
    )
    print(name, picture.size, flush=True)


def main() -> None:
    """Run, open, look, keep."""
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        runs = Path(scratch) / "runs"
        subprocess.run(fedkeel(*COMPARE, "--out", str(runs / "compare")), check=True, cwd=scratch)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--disable-gpu", "--no-sandbox"]
        )
        page = f"file://{runs / 'compare' / 'page.html'}"
        take(browser, page, "report-desktop", DESKTOP)
        take(browser, page, "report-dark", DESKTOP, dark=True)
        take(browser, page, "report-phone", PHONE)
        going = subprocess.Popen(
            fedkeel(*LIVE, "--on-client-error", "skip", "--out", "runs/going"),
            cwd=scratch,
            stderr=subprocess.DEVNULL,
        )
        watching = subprocess.Popen(fedkeel("watch", "runs"), cwd=scratch, stdout=subprocess.PIPE, text=True)
        try:
            assert watching.stdout is not None
            address = next(
                word for line in watching.stdout for word in line.split() if word.startswith("http")
            )
            time.sleep(12)
            take(browser, address, "watch-desktop", DESKTOP)
            take(browser, address, "watch-dark", DESKTOP, dark=True)
            take(browser, address, "watch-phone", PHONE)
        finally:
            for process in (going, watching):
                process.terminate()
                process.wait()
        browser.close()


if __name__ == "__main__":
    main()
