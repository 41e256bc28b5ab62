"""Downloads, against a server of the test's own: whole, broken off, resumed, wrong, absent."""

import gzip
import hashlib
import struct
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from fedkeel.common.errors import DataError
from fedkeel.data.sources import load, pictures
from fedkeel.data.sources.fetch import Archive, DataDirectories, cache, fetch

CONTENT = np.random.default_rng(0).bytes(50_000)


class Handler(BaseHTTPRequestHandler):
    """Serves `server.files`; `server.cuts` says after how many bytes the next answers break off."""

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Range")))
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        wanted = self.headers.get("Range") if self.server.ranges else None
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        if start >= len(content):
            self.send_error(416)
            return
        body = content[start:]
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.cuts.pop(0)] if self.server.cuts else body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.files, server.cuts, server.asked, server.ranges = {"/data.bin": CONTENT}, [], [], True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join(timeout=10)


def archive(server, content=CONTENT, path="/data.bin"):
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    return Archive("set/data.bin", f"http://127.0.0.1:{server.server_port}{path}", digest)


def test_a_download_is_kept_and_not_repeated(server, tmp_path):
    directories = DataDirectories((tmp_path,))
    for _ in range(2):
        path = directories.get(archive(server))
        assert path.read_bytes() == CONTENT
    assert server.asked == [("/data.bin", None)]
    assert [file.name for file in (tmp_path / "set").iterdir()] == ["data.bin"]


def test_downloads_are_made_over_https_with_a_sha256_only(server):
    with pytest.raises(DataError, match=r"http://example.org/data.bin: downloads are made over https only"):
        Archive("data.bin", "http://example.org/data.bin", archive(server).digest)
    with pytest.raises(DataError, match="checksum is 'md5:0': give a SHA-256"):
        Archive("data.bin", "https://example.org/data.bin", "md5:0")


def test_an_official_file_that_is_there_already_is_checked_once(server, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDKEEL_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "own" / "set" / "data.bin"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"something else")
    directories = DataDirectories((tmp_path / "own", tmp_path / "cache"))
    with pytest.raises(DataError, match=r"data.bin is not the official file: its SHA-256 is .*: delete it"):
        directories.get(archive(server))
    file.write_bytes(CONTENT)
    assert directories.get(archive(server)) == file
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("it was read again"))
    assert directories.get(archive(server)) == file
    assert server.asked == []


def test_a_broken_connection_is_resumed(server, tmp_path):
    server.cuts = [20_000, 10_000]
    assert fetch(archive(server), tmp_path).read_bytes() == CONTENT
    assert [asked for _, asked in server.asked] == [None, "bytes=20000-", "bytes=30000-"]


def test_a_download_that_keeps_breaking_goes_on_next_time(server, tmp_path):
    server.cuts = [10_000, 10_000, 10_000]
    with pytest.raises(DataError, match=r"broke off after 30,000 bytes.*load again to go on from there"):
        fetch(archive(server), tmp_path)
    assert not (tmp_path / "set/data.bin").exists()
    assert fetch(archive(server), tmp_path).read_bytes() == CONTENT
    assert server.asked[-1] == ("/data.bin", "bytes=30000-")


def test_a_server_that_cannot_resume_sends_all_again(server, tmp_path):
    server.ranges = False
    server.cuts = [20_000]
    assert fetch(archive(server), tmp_path).read_bytes() == CONTENT


def test_a_left_over_longer_than_the_file_is_thrown_away(server, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/data.bin.part").write_bytes(CONTENT + b"more")
    assert fetch(archive(server), tmp_path).read_bytes() == CONTENT


def test_a_complete_left_over_is_checked_like_any_download(server, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/data.bin.part").write_bytes(CONTENT)
    assert fetch(archive(server), tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("left_over", [b"", b"bytes of an older version"])
def test_a_wrong_checksum_leaves_nothing_behind(server, tmp_path, left_over):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/data.bin.part").write_bytes(left_over)
    with pytest.raises(DataError, match=r"does not have the checksum sha256:.*put it in"):
        fetch(archive(server, b"another file"), tmp_path)
    assert list((tmp_path / "set").iterdir()) == []


def test_a_file_that_is_gone_and_a_server_that_is_down(server, tmp_path):
    with pytest.raises(DataError, match="the server says 404"):
        fetch(archive(server, path="/moved.bin"), tmp_path)
    nobody = Archive("data.bin", "http://127.0.0.1:9/data.bin", "sha256:0")
    with pytest.raises(DataError, match="broke off after 0 bytes"):
        fetch(nobody, tmp_path)


def test_a_cache_that_cannot_be_written_is_named(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot store .*set FEDKEEL_CACHE"):
        fetch(archive(server), tmp_path / "file")


def test_without_pooch_the_install_command_is_printed(server, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DataError, match=r'pip install "fedkeel\[data\]"'):
        fetch(archive(server), tmp_path)


def test_the_cache_follows_the_users_settings(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDKEEL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache() == tmp_path / "fedkeel"
    monkeypatch.setenv("FEDKEEL_CACHE", str(tmp_path / "own"))
    assert cache() == tmp_path / "own"


def test_loading_downloads_what_is_missing(server, tmp_path, monkeypatch):
    monkeypatch.delenv("FEDKEEL_DATA", raising=False)
    monkeypatch.setenv("FEDKEEL_CACHE", str(tmp_path))
    arrays = [np.full((3, 28, 28), 7, np.uint8), np.arange(3, dtype=np.uint8)] * 2
    local = []
    for official, array in zip(pictures.MNIST, arrays, strict=True):
        content = gzip.compress(
            struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()
        )
        path = "/" + official.file
        server.files[path] = content
        wanted = archive(server, content, path)
        local.append(Archive(official.file, wanted.url, wanted.digest))
    monkeypatch.setattr(pictures, "MNIST", tuple(local))
    assert load("mnist").y.tolist() == [0, 1, 2]
    assert len(server.asked) == 4
    assert load("mnist", download=False).x.shape == (3, 1, 28, 28)
