"""One process: errors to exit codes, signals, the format of logs."""

import codecs
import contextlib
import functools
import io
import json
import logging
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import typer
from typer.core import TyperGroup

from dist_bpe.errors import EXIT_CODES, DistBpeError, RunError, UsageError, of_system
from dist_bpe.processes import children, kill
from dist_bpe.progress import Progress, Tell, give_up, json_line, line


class Commands(TyperGroup):
    """The commands in the order of the data, and what they end with."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write each command with the first sentence of its help, whole at any width."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, (command.help or "").partition("\n\n")[0]) for name, command in self.commands.items()]
            )

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write what exit codes mean."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])


app = typer.Typer(
    name="dist-bpe",
    cls=Commands,
    help="Train production BPE vocabularies on whole corpora: exact, reproducible, at the speed of reading.",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich help loads a Markdown renderer: half a second for every --help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Command = TypeVar("Command", bound=Callable[..., None])
# What the libraries need to be loaded, and to start their threads. With less some end the process instead of failing.
LEAST_ADDRESS_SPACE = 400 << 20


def _end_at_once(number: int, _: Any) -> None:
    """Kill what this process has started, an embedded Ray with workers that would end their task first, and end."""
    kill(children(os.getpid()))
    os._exit(128 + number)


def _version(asked: bool) -> None:
    if asked:
        from dist_bpe import __version__

        print(f"dist-bpe {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


class _AsJson(logging.Handler):
    """What Python and other libraries have to say, as events."""

    def emit(self, record: logging.LogRecord) -> None:
        json_line("log", record.getMessage(), record.levelname.lower(), logger=record.name)


@contextlib.contextmanager
def _logging(log_format: str) -> Iterator[Tell]:
    """How this command tells what happens to it."""
    if log_format != "json":
        yield lambda event, text=None, **fields: line(text or event)  # noqa: ARG005
        return
    handler = _AsJson()
    logging.getLogger().addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield json_line
    finally:
        logging.captureWarnings(False)
        logging.getLogger().removeHandler(handler)


@contextlib.contextmanager
def _signals(received: list[int], tell: Tell) -> Iterator[None]:
    """Answer Ctrl-C or SIGTERM by KeyboardInterrupt, which also ends a call into the native core; twice: end at once.

    The number goes into a list, since Ray makes a plain KeyboardInterrupt of whatever a handler raises.
    """

    def first(number: int, _: Any) -> None:
        received.append(number)
        for n in before:
            signal.signal(n, _end_at_once)
        tell("stopping", "stopping; once more to stop at once …", signal=signal.Signals(number).name)
        raise KeyboardInterrupt

    # A signal that was ignored from the start, as in the background of a shell, stays so.
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    before = {n: signal.getsignal(n) for n in numbers}
    try:
        for n in numbers:
            signal.signal(n, first)
        yield
    finally:
        # After a first signal the process is about to end, and a second one may come at any moment until then.
        for n, handler in before.items() if not received else ():
            signal.signal(n, handler)


def command(function: Command) -> Command:
    """Make a command; errors of ours become one sentence and their exit code.

    Inside the command, since Typer would turn Ctrl-C into exit code 1 before anything around it could see it.
    """

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        received: list[int] = []
        log_format = options.get("log_format", "text")
        _streams()
        with _logging(log_format) as tell:
            try:
                with _signals(received, tell):
                    _check_address_space()
                    function(*arguments, **options)
                    sys.stdout.flush()  # here, where what fails becomes a sentence
            except (KeyboardInterrupt, Exception) as error:
                if received or isinstance(error, KeyboardInterrupt):  # what fails after a signal fails because of it
                    code = 128 + (received or [signal.SIGINT])[0]
                    # Those that print alone have nothing to go on from.
                    text = "interrupted"
                    if "output" in options or "run" in options:
                        text += ": nothing half-written was left; give the same command again to go on"
                    text += "."
                    tell("interrupted", text, level="warning", exit_code=code)
                    sys.exit(code)
                if isinstance(error, BrokenPipeError):
                    # The reader of our output went away (`| head`). Python would complain once more when it flushes
                    # at exit.
                    give_up(sys.stdout)
                    give_up(sys.stderr)
                    sys.exit(1)
                found = _sentence(error)
                if found is not None:
                    sentence = str(found) if log_format == "json" else f"error: {found}"
                    tell("error", sentence, level="error", kind=type(found).__name__, exit_code=found.exit_code)
                    sys.exit(found.exit_code)
                if log_format != "json":
                    raise
                text = "".join(traceback.format_exception(error))
                tell("error", text, level="error", kind=type(error).__name__, exit_code=1)
                sys.exit(1)

    return cast(Command, run)


def _streams() -> None:
    """Make standard output take any text: what its encoding lacks, and names that are not UTF-8, are escaped.

    And give numbers to standard streams that are closed, or the next file that is opened would get what is printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  # for as long as the process lives
    out = sys.stdout
    if (
        out is sys.__stdout__
        and isinstance(out, io.TextIOWrapper)
        and type(getattr(out.buffer, "raw", out.buffer)) is io.FileIO
    ):
        out.flush()
        raw = io.BufferedWriter(_Output(out.fileno(), "w", closefd=False))
        sys.stdout = io.TextIOWrapper(raw, out.encoding, line_buffering=out.isatty())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="dist_bpe_escape")


class _Output(io.FileIO):
    """Standard output, whose errors say whose they are."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = "standard output"
            raise


def _check_address_space() -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_SPACE:
        raise RunError(
            f"this process may address {limit:,} bytes of memory (ulimit -v), and needs {LEAST_ADDRESS_SPACE:,} before "
            "it holds anything. Raise that limit."
        )


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Characters that cannot be encoded as JSON escapes them, so that JSON stays what it says."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error("dist_bpe_escape", _escaped)


def _sentence(error: BaseException) -> DistBpeError | None:
    """The sentence of an error that somebody can do something about; None for a defect of ours."""
    if isinstance(error, DistBpeError):
        return error
    limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    # A library for which no room is left cannot be loaded, and says so in many ways.
    if isinstance(error, MemoryError) or (limited and isinstance(error, (ImportError, SystemError))):
        why = f" ({error})" if str(error) else ""
        return RunError(
            f"the memory that this process may take is used up{why}. Give it more (ulimit -v, a control group), lower "
            "--memory-per-worker or --workers, and give the same command again."
        )
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return RunError(
            "no more threads can be started. Raise the limit of processes (ulimit -u, a control group) or of memory "
            "(ulimit -v), or lower --workers, and give the same command again."
        )
    if not isinstance(error, OSError):
        return None
    if error.filename == "standard output":
        give_up(sys.stdout)
    return of_system(error)


def new_progress(log_format: str) -> Progress:
    """How a command with this --log-format tells its progress."""
    if log_format not in ("text", "json"):
        raise UsageError(f"--log-format {log_format} is neither text nor json.")
    return Progress("json" if log_format == "json" else "auto")
