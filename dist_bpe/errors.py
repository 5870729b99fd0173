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

import re

# What messages, also those of other libraries, may quote of a URI: its login, and a signature among its options.
_LOGIN = re.compile(r"(?<=://)[^\s/@]+@")
_OPTIONS = re.compile(r"(://[^\s?\"']+)\?[^\s\"']+")


class DistBpeError(Exception):
    """Base of all errors raised on purpose. One string argument, so that it pickles across process borders."""

    exit_code = 1


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
    return _OPTIONS.sub(r"\1", _LOGIN.sub("", text))


class Stopped(RunError):
    """Raised inside a worker thread that was told to give up."""


class BadFile(SourceError):
    """A file that is not of its format: damaged, of another format, or without the columns asked for."""
