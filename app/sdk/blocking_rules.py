"""What blocks an event loop: calls by dotted name, methods of objects by what makes them, and the remedy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Code(StrEnum):
    """Kinds of findings; documented in docs/triggers-lint.md."""

    SLEEP = "TG101"
    HTTP = "TG102"
    CLIENT = "TG103"
    SOCKET = "TG104"
    FILE = "TG105"
    PROCESS = "TG106"
    INPUT = "TG107"
    WAIT = "TG108"
    BUSY = "TG109"


IN_A_THREAD = "`await asyncio.to_thread(…)`"
REMEDIES: dict[Code, str] = {
    Code.SLEEP: "use `await asyncio.sleep(…)`",
    Code.HTTP: f"use an asynchronous client, or {IN_A_THREAD}",
    Code.CLIENT: f"use the asynchronous client, or {IN_A_THREAD}",
    Code.SOCKET: "use asyncio's streams, or the loop's `sock_…` methods",
    Code.FILE: f"use {IN_A_THREAD}",
    Code.PROCESS: "use `asyncio.create_subprocess_exec(…)`",
    Code.INPUT: "a trigger has no terminal",
    Code.WAIT: f"use asyncio's own, `asyncio.wrap_future(…)`, or {IN_A_THREAD}",
    Code.BUSY: "`await asyncio.sleep(…)` in each turn",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Objects whose methods block. ``methods`` None means all but ``harmless``; ``derives`` give more of the kind."""

    code: Code
    methods: frozenset[str] | None = None
    harmless: frozenset[str] = frozenset()
    derives: frozenset[str] = frozenset()
    #: Whether making one blocks already.
    makes: bool = True
    #: Whether a plain ``for`` over one waits for the outside.
    iterates: bool = False

    def blocks(self, method: str) -> bool:
        """Whether calling ``method`` blocks."""
        return method not in self.harmless if self.methods is None else method in self.methods


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _below(module: str, names: str) -> Iterable[str]:
    return (f"{module}.{name}" for name in names.split())


_VERBS = "get post put patch delete head options request"
_FILE_TESTS = "exists isfile isdir islink getsize getmtime getctime getatime samefile realpath"
_SUBPROCESS = "run call check_call check_output Popen getoutput getstatusoutput"

#: Functions that block, by dotted name.
CALLS: dict[str, Code] = {
    "time.sleep": Code.SLEEP,
    "input": Code.INPUT,
    "open": Code.FILE,
    **dict.fromkeys(_below("sys.stdin", "read readline readlines"), Code.INPUT),
    "sys.stdin.buffer.read": Code.INPUT,
    "getpass.getpass": Code.INPUT,
    **dict.fromkeys(_below("requests", _VERBS), Code.HTTP),
    **dict.fromkeys(_below("requests.api", _VERBS), Code.HTTP),
    **dict.fromkeys(_below("httpx", f"{_VERBS} stream"), Code.HTTP),
    **dict.fromkeys(_below("urllib.request", "urlopen urlretrieve"), Code.HTTP),
    **dict.fromkeys(_below("urllib3", "request"), Code.HTTP),
    **dict.fromkeys(_below("socket", "create_connection getaddrinfo gethostbyname gethostbyaddr getfqdn"), Code.SOCKET),
    "select.select": Code.WAIT,
    **dict.fromkeys(_below("subprocess", _SUBPROCESS), Code.PROCESS),
    **dict.fromkeys(_below("os", "system popen wait waitpid spawnl spawnlp spawnv spawnvp posix_spawn"), Code.PROCESS),
    **dict.fromkeys(
        _below(
            "os",
            "open read write listdir scandir walk stat lstat remove unlink rename replace makedirs mkdir rmdir "
            "removedirs link symlink truncate utime chmod chown fsync",
        ),
        Code.FILE,
    ),
    **dict.fromkeys(_below("os.path", _FILE_TESTS), Code.FILE),
    **dict.fromkeys(_below("io", "open open_code"), Code.FILE),
    **dict.fromkeys(_below("codecs", "open"), Code.FILE),
    **dict.fromkeys(_below("gzip", "open"), Code.FILE),
    **dict.fromkeys(_below("glob", "glob iglob"), Code.FILE),
    **dict.fromkeys(
        _below("shutil", "copy copy2 copyfile copytree move rmtree make_archive unpack_archive"), Code.FILE
    ),
    **dict.fromkeys(
        _below("tempfile", "mkstemp mkdtemp NamedTemporaryFile TemporaryFile TemporaryDirectory"), Code.FILE
    ),
    **dict.fromkeys(_below("pathlib.Path", "cwd"), Code.FILE),
    "concurrent.futures.wait": Code.WAIT,
    "concurrent.futures.as_completed": Code.WAIT,
    "asyncio.run": Code.WAIT,
}

_PATH = Family(
    code=Code.FILE,
    makes=False,
    methods=_words(
        "open read_text read_bytes write_text write_bytes exists stat lstat is_file is_dir is_symlink iterdir glob "
        "rglob unlink mkdir rmdir rename replace touch resolve samefile chmod symlink_to hardlink_to readlink"
    ),
    derives=_words(
        "joinpath with_name with_suffix with_stem absolute resolve expanduser relative_to iterdir glob rglob rename"
    ),
)
_FILE = Family(
    code=Code.FILE,
    makes=False,
    methods=_words("read readline readlines write writelines flush truncate"),
    iterates=True,
)
_HTTP = Family(code=Code.HTTP, makes=False, methods=_words(f"{_VERBS} send stream urlopen urlretrieve open"))
_HTTP_CONNECTION = Family(code=Code.HTTP, makes=False, methods=_words("connect request getresponse endheaders send"))
_SOCKET = Family(
    code=Code.SOCKET,
    makes=False,
    methods=_words("connect recv recv_into recvfrom recvmsg send sendall sendto sendfile accept"),
)
_CLOUD = Family(
    code=Code.CLIENT,
    harmless=_words("can_paginate get_paginator get_waiter generate_presigned_url get_queue_by_name close Queue Table"),
    derives=_words("client resource get_paginator get_waiter Queue Table Topic Bucket Object get_queue_by_name"),
)
_SESSION = Family(code=Code.CLIENT, makes=False, methods=_words("client resource"), derives=_words("client resource"))
_DATABASE = Family(
    code=Code.CLIENT,
    harmless=_words("cursor set_session close"),
    derives=_words("cursor execute connect begin"),
)
_CLIENT = Family(
    code=Code.CLIENT,
    harmless=_words("pipeline pubsub register_script add_errback add_callback get_database get_collection close"),
    derives=_words("pipeline pubsub lock listen get_database get_collection channel"),
    iterates=True,
)
_PROCESS = Family(code=Code.PROCESS, makes=False, methods=_words("wait communicate"))
_WAITED = Family(code=Code.WAIT, makes=False, methods=_words("result exception wait join acquire get put"))
_EXECUTOR = Family(code=Code.WAIT, makes=False, methods=_words("shutdown"))

#: What makes objects whose methods block: the dotted name of a class or a function.
MAKERS: dict[str, Family] = {
    "pathlib.Path": _PATH,
    "pathlib.PosixPath": _PATH,
    "pathlib.Path.cwd": _PATH,
    "pathlib.Path.home": _PATH,
    **dict.fromkeys(("open", "io.open", "gzip.open", "codecs.open"), _FILE),
    **dict.fromkeys(("requests.Session", "requests.session", "httpx.Client", "urllib3.PoolManager"), _HTTP),
    **dict.fromkeys(("urllib.request.build_opener",), _HTTP),
    **dict.fromkeys(("http.client.HTTPConnection", "http.client.HTTPSConnection"), _HTTP_CONNECTION),
    **dict.fromkeys(("socket.socket", "socket.create_connection", "ssl.SSLSocket"), _SOCKET),
    **dict.fromkeys(("boto3.client", "boto3.resource"), _CLOUD),
    **dict.fromkeys(("boto3.Session", "boto3.session.Session"), _SESSION),
    **dict.fromkeys(
        (
            "psycopg2.connect", "psycopg.connect", "psycopg.Connection.connect", "sqlite3.connect", "pymysql.connect",
            "MySQLdb.connect", "mysql.connector.connect", "oracledb.connect", "pyodbc.connect", "duckdb.connect",
            "snowflake.connector.connect", "ibm_db.connect",
        ),
        _DATABASE,
    ),
    "sqlalchemy.create_engine": Family(code=Code.CLIENT, makes=False, methods=_words("connect begin"),
                                       derives=_words("connect begin")),
    **dict.fromkeys(
        (
            "redis.Redis", "redis.StrictRedis", "redis.from_url", "redis.Redis.from_url", "redis.client.Redis",
            "redis.cluster.RedisCluster", "kafka.KafkaConsumer", "kafka.KafkaProducer", "kafka.KafkaAdminClient",
            "confluent_kafka.Consumer", "confluent_kafka.Producer", "pika.BlockingConnection", "kombu.Connection",
            "pika.adapters.blocking_connection.BlockingConnection", "pymongo.MongoClient", "stomp.Connection",
            "pulsar.Client", "elasticsearch.Elasticsearch", "google.cloud.pubsub_v1.SubscriberClient",
            "google.cloud.storage.Client", "azure.servicebus.ServiceBusClient", "paramiko.SSHClient", "ftplib.FTP",
            "ftplib.FTP_TLS", "smtplib.SMTP", "smtplib.SMTP_SSL", "imaplib.IMAP4", "imaplib.IMAP4_SSL",
            "poplib.POP3", "poplib.POP3_SSL", "pymemcache.Client", "cassandra.cluster.Cluster",
        ),
        _CLIENT,
    ),
    "subprocess.Popen": _PROCESS,
    **dict.fromkeys(
        (
            "concurrent.futures.Future", "asyncio.run_coroutine_threadsafe", "threading.Thread", "threading.Event",
            "threading.Lock", "threading.RLock", "threading.Semaphore", "threading.Condition", "threading.Barrier",
            "queue.Queue", "queue.SimpleQueue", "queue.LifoQueue", "queue.PriorityQueue", "multiprocessing.Queue",
            "multiprocessing.Process", "multiprocessing.Event", "multiprocessing.Lock",
        ),
        _WAITED,
    ),
    **dict.fromkeys(
        ("concurrent.futures.ThreadPoolExecutor", "concurrent.futures.ProcessPoolExecutor"), _EXECUTOR
    ),
}  # fmt: skip

#: Methods so telling that they count whatever they are called on, unless awaited.
TELLING_METHODS: dict[str, Code] = dict.fromkeys(("read_text", "read_bytes", "write_text", "write_bytes"), Code.FILE)
#: Calls that run what they are given in a thread or a process: functions passed to them do not block.
ELSEWHERE = _words("to_thread run_in_executor run_sync submit Thread Process Timer sync_to_async run_in_threadpool")
#: Calls that run what they are given on the loop.
ON_THE_LOOP = _words(
    "call_soon call_soon_threadsafe call_later call_at add_done_callback add_reader add_writer add_signal_handler"
)
#: Reading a clock in a loop that never waits.
CLOCKS = frozenset({*_below("time", "time monotonic perf_counter time_ns monotonic_ns"), "datetime.datetime.now"})
