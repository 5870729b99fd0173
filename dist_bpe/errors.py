"""What can go wrong, as one small tree; every error carries one sentence that names the value and the way out.

DistBpeError                 exit code 1
├── UsageError               exit code 2   an option, a pattern, a size or an input that cannot work: found before work
│   └── SourceError          exit code 2   no such file or column, no text found
│       └── AccessError      exit code 2   a place that refuses these credentials
├── DataError                exit code 3   a file or row that cannot be counted, found while reading
│   └── NetworkError         exit code 3   a place that did not answer within the deadline
├── FormatError              exit code 4   a vocabulary or count-table file that is damaged or of another layout
├── ExportError              exit code 5   a library reads an exported file otherwise than we do
├── RunError                 exit code 6   a run folder that holds something else than the command needs
│   └── DamagedRunError      exit code 6   a staged file that is not what was written; it is made again
└── CountOverflowError       exit code 7   a count past 2^64 - 1
"""

import errno
import os
import re

#: What the command line ends with, and what each means; docs/command-line.md and --help show this table.
EXIT_CODES = {
    0: "done",
    1: "another library fails, a defect of ours, or nobody reads what is printed",
    2: "an option, a pattern, a size or an input that cannot work: found before work",
    3: "a file or row that cannot be counted, or a place that does not answer: found while reading",
    4: "a vocabulary or count-table file that is damaged or of another layout",
    5: "a library reads an exported file otherwise than we do",
    6: "a run folder that holds something else than the command needs, or a limit of the machine: memory, disk",
    7: "a count past 2^64 - 1",
    130: "Ctrl-C; what was finished is kept, and the same command goes on",
    143: "SIGTERM, likewise",
}
# What messages, also those of other libraries, may quote of a URI: its login, and a signature among its options. One
# slash is enough, since a path made of a URI has lost the other; a secret may have slashes; a port is none.
_LOGIN = re.compile(r"(?<=:/)(/?)(?:[^\s/@]+|[^\s/@:]+:(?!\d+/)[^\s@]+)@")
_OPTIONS = re.compile(r"(:/[^\s?\"']+)\?[^\s\"']+")
# Control characters, line and paragraph separators, marks that turn the direction of text, and halves of a character,
# which are also how Python holds the bytes of a name that is not UTF-8.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
#: What a full disk or a used-up quota answers.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_WAYS_OUT = {
    errno.EACCES: "Give this user the right to it, or name another place.",
    errno.EPERM: "Give this user the right to it, or name another place.",
    errno.EROFS: "What lies there can only be read: name another place.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.ENOTDIR: "Something on the way there is a file: name another place.",
    errno.EISDIR: "It is a folder: name another place.",
    errno.EEXIST: "Something else has that name: name another place.",
    errno.ELOOP: "Its links lead in a circle: name another place.",
    errno.ENOENT: "Something on the way there is missing: make it, or name another place.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n), and give the same command again.",
    errno.ENFILE: "Raise the machine's limit of open files, and give the same command again.",
    errno.ENOMEM: "Give this process more memory, and give the same command again.",
    **dict.fromkeys(FULL, "Free some space there, and give the same command again."),
}
# What is wrong with the place named, and not with how its disk does at the moment.
_OF_THE_NAME = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP,
    errno.ENOENT, errno.EINVAL,
}  # fmt: skip


class DistBpeError(Exception):
    """Base of all errors raised on purpose. One string argument, so that it pickles across process borders."""

    exit_code = 1

    def _render_traceback_(self) -> list[str]:
        """What IPython and Jupyter show of it: the first time the sentence, and after that, with `%tb`, where it rose.

        In a script, and in `traceback`, it stands as any other error does.
        """
        if not self.__dict__.get("_shown"):
            self.__dict__["_shown"] = True
            return [f"{type(self).__name__}: {printable(str(self))}", "(%tb shows where it was raised)"]
        import traceback

        return "".join(traceback.format_exception(self)).splitlines()


class UsageError(DistBpeError):
    """An option or input that cannot work, found before any counting."""

    exit_code = 2


class SourceError(UsageError):
    """A source without files, without the named column, or without text."""


class AccessError(SourceError):
    """A place that refuses these credentials: no fault of the file, which is never skipped for it."""


class DataError(DistBpeError):
    """A file or row that cannot be counted; the message names file, row and byte."""

    exit_code = 3


class NetworkError(DataError):
    """A place that could not be reached within the deadline: no fault of the file, which is never skipped for it."""


class FormatError(DistBpeError):
    """A file of a vocabulary or count table that is damaged or laid out otherwise."""

    exit_code = 4


class ExportError(DistBpeError):
    """An exported file that its own library reads otherwise; the message names the text."""

    exit_code = 5


class RunError(DistBpeError):
    """A run folder that does not hold what the command needs."""

    exit_code = 6


class DamagedRunError(RunError):
    """A staged spill that is not what was written; its commit is gone, so that its shard is counted again."""


class CountOverflowError(DistBpeError):
    """A count or sum past 2^64 - 1."""

    exit_code = 7


def without_secrets(text: str) -> str:
    """A text without logins and options of the URIs in it."""
    return _OPTIONS.sub(r"\1", _LOGIN.sub(r"\1", text))


def printable(text: str) -> str:
    """A text for a terminal or a log: without secrets, in one line, and with what would act on a terminal escaped."""
    return _UNSEEN.sub(_escape, without_secrets(text))


def _escape(found: "re.Match[str]") -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return {9: "\\t", 10: "\\n", 13: "\\r"}.get(code) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def several(count: int, what: str) -> str:
    """A number of things: 1 file, 2,000 files."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def of_system(error: OSError, path: "str | os.PathLike[str] | None" = None, what: str = "be used") -> DistBpeError:
    """The sentence for what the operating system refused, with the way out.

    Args:
        error: what it raised.
        path: what was to be used; by default what the error names.
        what: what could not be done with it, as in "be written".

    Returns:
        UsageError: another place has to be named, or be given other rights.
        RunError: the disk, the network or a limit has to be seen to.
    """
    named = error.filename2 if error.filename2 is not None else error.filename
    where = path if path is not None else named
    text = f"{os.fsdecode(where)} cannot {what}" if isinstance(where, (str, bytes, os.PathLike)) else "the system"
    text += f": {error.strerror or error}".rstrip(".") + "."
    kind = UsageError if error.errno in _OF_THE_NAME else RunError
    return kind(f"{text} {_WAYS_OUT.get(error.errno or 0, 'See to it, and give the same command again.')}")


class Stopped(RunError):
    """Raised inside a worker thread that was told to give up."""


class BadFile(SourceError):
    """A file that is not of its format: damaged, of another format, or without the columns asked for."""
