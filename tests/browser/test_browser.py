"""The browser of these tests sees what is wrong with a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FAULTY = """<!doctype html><html lang="en"><title>faulty</title><main><h1>Faulty</h1>
<img src="http://127.0.0.1:9/pixel.png"><p style="color:#ddd;background:#fff">pale</p></main>
<script>undefined.x</script></html>"""
SOUND = (
    """<!doctype html><html lang="en"><title>sound</title><main><h1>Sound</h1><p>black</p></main></html>"""
)


def test_errors_requests_and_faults_of_a_page_are_seen(open_page: Any, tmp_path: Path) -> None:
    file = tmp_path / "faulty.html"
    file.write_text(FAULTY)
    shown = open_page(file)
    assert any("TypeError" in text or "undefined" in text for text in shown.errors)
    assert shown.foreign_requests == ["http://127.0.0.1:9/pixel.png"]
    found = " ".join(shown.serious_faults())
    assert "image-alt" in found
    assert "color-contrast" in found


def test_a_sound_page_is_quiet(open_page: Any, tmp_path: Path) -> None:
    file = tmp_path / "sound.html"
    file.write_text(SOUND)
    for dark in (False, True):
        shown = open_page(file, dark=dark, phone=True)
        shown.check_quiet()
        assert shown.serious_faults() == []
