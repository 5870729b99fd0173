"""Patterns: how a text is cut into words before anything is counted, by name or by any regular expression.

A pattern is stored once, as the text that Python's `regex` module reads. The libraries that later read an exported
vocabulary run other regex engines, so a named pattern also knows the texts that mean the same there; for a custom one
`warnings_for` compares the engines on the probe texts.
"""

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import regex

from dist_bpe import _core
from dist_bpe.errors import DataError, UsageError


@dataclass(frozen=True)
class Pattern:
    r"""A way to cut text into words; every character of the text is in exactly one word.

    Attributes:
        regex: the pattern as the `regex` module reads it; each match is a word, and so is what stands between two.
        name: None for a custom pattern.
        summary: what it does, in a line.
        tokenizers: the texts that mean the same to Oniguruma, the engine in Hugging Face `tokenizers`, where the first
            would not: there `{1,3}+` is not possessive and `$` stands before every line end. Of several, each cuts what
            those before it have left between their matches, and their matches too; with none, nothing is cut.
            Where release 1.0, which has no engine built in, knows a text of the meaning, it is that one to the letter.
        tokenizers_digits: behind them stands its `Digits` step, which makes each number a word.
        tiktoken: the text for `fancy-regex`, the engine in `tiktoken`.
        byte_level: the `ByteLevel` pre-tokenizer of `tokenizers` has this pattern built in.
        llama_cpp: the pre-tokenizer of llama.cpp to convert with, equal or the nearest: see docs/patterns.md.
        aliases: other published texts of the same meaning, recognised when a vocabulary is read.
    """

    regex: str
    name: str | None = None
    summary: str = ""
    tokenizers: tuple[str, ...] | None = None
    tokenizers_digits: bool = False
    tiktoken: str | None = None
    byte_level: bool = False
    llama_cpp: str | None = None
    aliases: tuple[str, ...] = ()

    @property
    def native(self) -> bool:
        """Whether the compiled module has a scanner for it, some hundred times as fast as `words`."""
        return self.name in _core.PATTERNS

    @property
    def tokenizers_regexes(self) -> tuple[str, ...]:
        """The texts to hand to `tokenizers`, one `Split` each."""
        return (self.regex,) if self.tokenizers is None else self.tokenizers

    @property
    def tokenizers_steps(self) -> list[dict[str, Any]]:
        """The steps of the pre-tokenizer in tokenizer.json, but for the last one, which writes bytes as letters."""
        splits: list[dict[str, Any]] = [
            {"type": "Split", "pattern": {"Regex": text}, "behavior": "Isolated", "invert": False}
            for text in self.tokenizers_regexes
        ]
        return splits + [{"type": "Digits", "individual_digits": True}] * self.tokenizers_digits

    @property
    def tiktoken_regex(self) -> str:
        """The text to hand to `tiktoken`."""
        return self.tiktoken or self.regex

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text known to mean this pattern by itself."""
        alone = self.tokenizers_regexes if len(self.tokenizers_steps) == 1 else ()
        return (self.regex, *alone, self.tiktoken_regex, *self.aliases)

    def pieces(self, text: str, seconds: float | None = None) -> list[str]:
        """Cut a text into words, through the `regex` module; there may be empty ones among them.

        The whole match counts, so capture groups change nothing; empty matches are passed over; text between matches is
        kept as words of its own, as the behaviour "isolated" of `tokenizers` does. (`tiktoken` drops such text.)

        An expression that tries without end, such as `(a|aa)+$`, is stopped.

        Args:
            text: what to cut.
            seconds: how long it may take, in seconds of processors (of all threads); by default `seconds_for` the text.

        Raises:
            PatternTimeoutError: it took longer; the text is not named.
        """
        compiled = compile_regex(self.regex)
        limits: dict[str, Any] = {}
        if seconds is not None or len(text) > _safe_length(self.regex):
            limits = {"timeout": seconds_for(text) if seconds is None else seconds}
        try:
            if not compiled.groups:
                found: list[str] = compiled.findall(text, **limits)
                # Matches never overlap, so only their lengths can show that something was lost between them.
                if sum(map(len, found)) == len(text):
                    return found
            return _isolated(compiled.finditer(text, **limits), text)
        except TimeoutError as error:
            raise PatternTimeoutError(
                f"the pattern {self.regex!r} took more than {limits['timeout']:.3g} s for a text of "
                f"{len(text):,} characters: it tries the same characters again and again. Write repetitions that "
                "exclude each other, or possessive ones such as \\w++, or leave that text out."
            ) from error

    def words(self, text: str, seconds: float | None = None) -> list[bytes]:
        """The pieces as bytes, without empty ones; see `pieces`.

        Raises:
            PatternTimeoutError: it took longer than it may.
            UsageError: the text has a lone surrogate.
        """
        try:
            return [piece.encode() for piece in self.pieces(text, seconds) if piece]
        except UnicodeEncodeError as error:
            raise surrogate_error(text) from error


class PatternTimeoutError(DataError):
    """A pattern that tries too long on a text; the message names the pattern and the text's length, not its place."""


def seconds_for(text: str) -> float:
    """How long a pattern may take for a text, in seconds of this process's processors: a minute, and fifty times what
    is usual for its length.
    """
    return 60.0 + len(text) / 100_000


# What of an expression decides how long it can try: escapes and classes, groups, borders of branches, quantifiers.
_PART = regex.compile(
    r"""
    (?<atom> \\[pPN]\{[^}]*\} | \\[^0-9gGXLKR] | \[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\[\]\\])*\] )
    | (?<flag> \(\?[ims]+\) )
    | (?<open> \( (?: (?!\?) | \?(?:[=!:>]|<[=!]|P?<\w+>|[ims]+:) ) )
    | (?<close> \) )
    | (?<branch> \| )
    | (?<quantifier> (?: [*+?] | \{\d*,?\d*\} ) [+?]? )
    | (?<other> [^\\\[({] )
    """,
    regex.VERBOSE | regex.DOTALL,
)
#: Steps of a match that take some seconds at the most.
_FEW_STEPS = 1e9


@functools.cache
def _safe_length(text: str) -> float:
    """How long a text may be for an expression to be done with it in seconds, whatever stands in it.

    A clock makes matching three times as slow, so it shall run only where it is needed. With k repetitions without a
    limit in one branch, none of them of a group, there are at most n^k/k! ways to match from each of n places. Whatever
    is not plainly of that kind gets 0.
    """
    branches = [[0]]  # of each open group the repetitions in each branch
    at = 0
    before = ""
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            return 0
        kind, shown = str(part.lastgroup), part.group()
        match kind:
            case "open":
                branches.append([0])
            case "close":
                if len(branches) == 1:
                    return 0
                inside = max(branches.pop())
                branches[-1][-1] += inside
            case "branch":
                branches[-1].append(0)
            case "quantifier":
                if before == "close" and shown[0] != "?":
                    return 0
                if not shown[1:].endswith("+") and not regex.fullmatch(r"\?\??|(?:\{\d\}|\{\d?,\d\})\??", shown):
                    branches[-1][-1] += 1
        before = kind
        at = part.end()
    if len(branches) > 1:
        return 0
    repetitions = max(branches[0])
    return float((_FEW_STEPS * math.factorial(repetitions + 1)) ** (1 / (repetitions + 1)))


def _isolated(matches: Iterable[Any], text: str) -> list[str]:
    """The matches and what stands between them, in order, without empty pieces."""
    words = []
    end = 0
    for match in matches:
        start, stop = match.span()
        if start == stop:
            continue
        if end < start:
            words.append(text[end:start])
        words.append(text[start:stop])
        end = stop
    if end < len(text):
        words.append(text[end:])
    return words


GPT2 = Pattern(
    name="gpt2",
    summary="GPT-2's: English contractions in small letters, runs of letters, numbers, others, each with its space",
    regex=r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    tokenizers=(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",),
    # The text `tiktoken` publishes: the possessive forms keep its engine from walking back through long runs.
    tiktoken=r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    byte_level=True,
    llama_cpp="gpt-2",
)
GPT2_MARKS = Pattern(
    name="gpt2-marks",
    summary="as gpt2, but marks belong to letters: for Hindi, Thai and all scripts whose vowels are marks",
    regex=r"'(?:[sdmt]|ll|ve|re)| ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+",
    tiktoken=(r"'(?:[sdmt]|ll|ve|re)| ?[\p{L}\p{M}]++| ?\p{N}++| ?[^\s\p{L}\p{M}\p{N}]++|\s++$|\s+(?!\S)|\s"),
)
CL100K = Pattern(
    name="cl100k",
    summary="GPT-4's: contractions in any case, letters with one other character before, up to three digits, line ends",
    regex=(
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
        r"|\s+(?!\S)|\s"
    ),
    # Greedy quantifiers give the same matches, since no alternative can go on after giving a character back.
    tokenizers=(
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?![\s\S])|\s*[\r\n]"
        r"|\s+(?!\S)|\s",
    ),
    llama_cpp="dbrx",
)
LLAMA3 = Pattern(
    name="llama3",
    summary="Llama 3's: as cl100k, but white space at the end of a text is cut at its line ends too",
    regex=(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    ),
    llama_cpp="llama-bpe",
)
QWEN2 = Pattern(
    name="qwen2",
    summary="Qwen 2's: as llama3, but every digit is a word",
    regex=LLAMA3.regex.replace(r"\p{N}{1,3}", r"\p{N}"),
    llama_cpp="qwen2",
)
QWEN35 = Pattern(
    name="qwen3.5",
    summary="Qwen 3.5's: as qwen2, but marks belong to letters",
    regex=(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    ),
    llama_cpp="qwen35",
)
O200K = Pattern(
    name="o200k",
    summary="GPT-4o's: as llama3, but marks belong to letters, a capital after a small letter begins a word",
    regex=(
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    llama_cpp="granite-embed-multi-97m",  # its gpt-4o cuts syllables apart at their marks
)
TEKKEN = Pattern(
    name="tekken",
    summary="Mistral's Tekken: as o200k, but contractions are cut like other words, and every digit is a word",
    regex=O200K.regex.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(r"\p{N}{1,3}", r"\p{N}"),
    llama_cpp="granite-embed-multi-97m",  # its tekken too
)
# Moonshot AI publishes intersections of classes, `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]`, which `regex` reads in
# another mode only: there each is written as all but the other categories.
_KIMI = (
    r"[\p{Han}]+"
    r"|[^\r\n\p{L}\p{N}]?[UPPER]*[LOWER]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[UPPER]+[LOWER]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_KIMI_PUBLISHED = _KIMI.replace("UPPER", r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]").replace(
    "LOWER", r"\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]"
)
KIMI_K2 = Pattern(
    name="kimi-k2",
    summary="Kimi K2's: as o200k, but runs of Han characters are words of their own, and slashes join nothing",
    regex=_KIMI.replace("UPPER", r"^\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}").replace(
        "LOWER", r"^\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}"
    ),
    tokenizers=(_KIMI_PUBLISHED,),
    tiktoken=_KIMI_PUBLISHED,
    llama_cpp="kimi-k2",
)
# DeepSeek-V3 cuts three times: at numbers, at runs of kana and ideographs, and what is left by its third expression,
# for which a text then ends before a number or an ideograph. In one expression that is written out: what the range
# holds that is no letter or mark (its signs, its unassigned code points), letters and marks outside of it (all but the
# other categories), and at the end what no expression takes, which `tokenizers` keeps together up to the next match.
_RANGE = "\u4e00-\u9fa5\u3040-\u30ff"
_RANGE_SIGNS = "\u309b\u309c\u30a0\u30fb"
_RANGE_GAPS = "\u3040\u3097\u3098"
_RANGE_LETTERS = "\u4e00-\u9fa5\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
_LETTERS = rf"[^\p{{P}}\p{{S}}\p{{N}}\p{{Z}}\p{{C}}{_RANGE}]"
_ASCII_SIGN = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
DEEPSEEK3 = Pattern(
    name="deepseek3",
    summary="DeepSeek-V3's: digits in threes, kana and ideographs, and words with marks are cut one after another",
    regex=(
        rf"\p{{N}}{{1,3}}|[{_RANGE_GAPS}]?[{_RANGE_LETTERS}]+|[{_RANGE_SIGNS}]+|[{_RANGE_GAPS}]+(?![{_RANGE_LETTERS}])"
        rf"|{_ASCII_SIGN}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}\p{{N}}{_RANGE}]?{_LETTERS}+"
        rf"| ?[^\p{{L}}\p{{M}}\p{{N}}\p{{Z}}\p{{C}}{_RANGE_SIGNS}]+[\r\n]*|\s*[\r\n]+"
        rf"|\s+(?![^\s\p{{N}}{_RANGE}])|\s+|[^\s\p{{L}}\p{{M}}\p{{P}}\p{{S}}\p{{N}}{_RANGE}]+(?!{_LETTERS})"
    ),
    tokenizers=(
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        _ASCII_SIGN + "[A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
        "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    ),
    llama_cpp="deepseek-v3",
)
NONE = Pattern(
    name="none",
    summary="no cut: each text between special tokens is one word",
    regex=r"[\s\S]+",
    tokenizers=(),
)
DIGITS = {
    "digits1": r"\p{N}",
    "digits3": r"\p{N}{1,3}",
    "digits3r": r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
}
"""Other rules for numbers, as they are added to a name (`o200k+digits3r`): each digit a word; groups of three from the
left; groups of three from the right, so that thousands stay whole. No space before a number is part of its word."""
# For export: the numbers behind a group are whole groups, so that only the first one of a run looks ahead to its end.
# The other spelling does so at each, which takes the square of a run's length: for 32,000 digits 3.3 s in `tiktoken`
# and 0.7 s in `tokenizers`, and so it takes 3 and 10 ms (2026-12).
_LINEAR_DIGITS = DIGITS | {"digits3r": r"(?<!\p{N})\p{N}{1,3}(?=(?:\p{N}{3})*+(?!\p{N}))|\p{N}{3}"}
_NUMBERS = regex.compile(r"(?<=^|\|)(?: \?)?\\p\{N\}(?:\{1,3\})?\+{0,2}(?=\||$)")


def _with_digits(pattern: Pattern, digits: str) -> Pattern:
    """A pattern with another rule for numbers, in each of its texts."""

    def changed(text: str, rules: dict[str, str] = _LINEAR_DIGITS) -> str:
        return str(_NUMBERS.sub(lambda _: rules[digits], text))

    # Their words with numbers in them hold nothing else but a space, so that they can be cut once more; `tokenizers`
    # 1.0 knows their texts, and not those with another rule for numbers.
    twice = digits == "digits1" and pattern in (GPT2, O200K)
    return Pattern(
        name=f"{pattern.name}+{digits}",
        summary=f"as {pattern.name}, numbers by {digits}",
        regex=changed(pattern.regex, DIGITS),
        tokenizers=pattern.tokenizers_regexes if twice else tuple(map(changed, pattern.tokenizers_regexes)),
        tokenizers_digits=twice,
        tiktoken=changed(pattern.tiktoken_regex),
        # Where each number is a word, no merge joins digits of ASCII to anything: then a cut that leaves them together,
        # or a space before them, gives the same ids.
        llama_cpp=pattern.llama_cpp if digits == "digits1" else None,
        aliases=tuple(changed(text, DIGITS) for text in pattern.texts),
    )


def _variants() -> Iterator[Pattern]:
    """Every pattern, and behind it those with other rules for numbers than its own, each meaning once."""
    has: dict[str, tuple[str, ...]] = {
        "cl100k": ("digits3",),
        "llama3": ("digits3", "digits1"),  # the latter is qwen2
        "qwen2": tuple(DIGITS),  # llama3's, but its own
        "qwen3.5": ("digits1",),
        "o200k": ("digits3",),
        "tekken": ("digits1",),
        "kimi-k2": tuple(DIGITS),  # numbers are among its Han characters too
        "deepseek3": ("digits3",),
        "none": tuple(DIGITS),
    }
    for pattern in (GPT2, GPT2_MARKS, CL100K, LLAMA3, QWEN2, QWEN35, O200K, TEKKEN, KIMI_K2, DEEPSEEK3, NONE):
        yield pattern
        yield from (_with_digits(pattern, digits) for digits in DIGITS if digits not in has.get(str(pattern.name), ()))


PATTERNS: dict[str, Pattern] = {str(pattern.name): pattern for pattern in _variants()}
"""The patterns that have a name. One definition here, and a rule in the native scanner, make a new one."""
_OTHER_NAMES = {
    "cl100k+digits3": "cl100k",
    "llama3+digits1": "qwen2",
    "llama3+digits3": "llama3",
    "qwen2+digits1": "qwen2",
    "qwen2+digits3": "llama3",
    "qwen2+digits3r": "llama3+digits3r",
    "qwen3.5+digits1": "qwen3.5",
    "o200k+digits3": "o200k",
    "tekken+digits1": "tekken",
    "kimi-k2+digits3": "kimi-k2",
    "deepseek3+digits3": "deepseek3",
}
KNOWN_NAMES = ", ".join(name for name in PATTERNS if "+" not in name)
"""The names to choose from, for messages; `+digits1` and so on go with all but the last and `kimi-k2`."""
_BY_TEXT = {text: pattern for pattern in PATTERNS.values() for text in pattern.texts}
_BY_SPLITS = {
    (pattern.tokenizers_regexes, pattern.tokenizers_digits): pattern
    for pattern in PATTERNS.values()
    if not pattern.byte_level
} | {((DIGITS["digits3r"], *DEEPSEEK3.tokenizers_regexes[1:]), False): PATTERNS["deepseek3+digits3r"]}


@functools.cache
def compile_regex(text: str) -> "regex.Pattern[str]":
    """An expression compiled, once a process."""
    return regex.compile(text)


def find(text: str) -> Pattern:
    """The pattern of a name, of a text that a named one is known by, or of any text that compiles.

    Raises:
        UsageError: no such name, or the text does not compile.
    """
    if text in PATTERNS or text in _OTHER_NAMES:
        return PATTERNS[_OTHER_NAMES.get(text, text)]
    if text in _BY_TEXT:
        return _BY_TEXT[text]
    if not text:
        raise UsageError(f"the pattern is empty; name one ({KNOWN_NAMES}) or give a regular expression.")
    if regex.fullmatch(r"[A-Za-z][\w.-]*(?:\+digits\w*)*", text):
        raise UsageError(
            f"unknown pattern {text!r}; the known names are: {KNOWN_NAMES}, and all but none and kimi-k2 with "
            f"+{', +'.join(DIGITS)} behind. Anything else is read as a regular expression, which this does not look "
            f"like (write (?:{text}) if it is one)."
        )
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError(f"the pattern {text!r} has a lone surrogate, which UTF-8 cannot write; write \\uD800 or so.")
    try:
        compiled = compile_regex(text)
    except (regex.error, OverflowError, RecursionError) as error:
        raise UsageError(
            f"the pattern {text!r} does not compile: {error}. Mend it, or name one: {KNOWN_NAMES}."
        ) from error
    if compiled.flags & regex.REVERSE:
        raise UsageError(f"the pattern {text!r} searches backwards; leave out its flag (?r), words go forwards.")
    return Pattern(text)


def find_splits(texts: Sequence[str], digits: bool = False) -> Pattern:
    """The pattern of the texts that `tokenizers` splits by, one after another: see `Pattern.tokenizers_steps`.

    Args:
        texts: the texts.
        digits: whether each number is cut off behind them.

    Raises:
        UsageError: several steps that no named pattern has, or a text that does not compile.
    """
    if (tuple(texts), digits) in _BY_SPLITS:
        return _BY_SPLITS[tuple(texts), digits]
    if len(texts) == 1 and not digits:
        return find(texts[0])
    steps = [*map(repr, texts), *["digits"] * digits]
    raise UsageError(f"text is cut {len(steps)} times, by {' and then '.join(steps)}, as no pattern here does.")


def surrogate_error(text: str) -> UsageError:
    """The error of a text that has no UTF-8 form; the same on every way in."""
    at = next((i for i, character in enumerate(text) if "\ud800" <= character <= "\udfff"), 0)
    return UsageError(
        f"the text has a lone surrogate, U+{ord(text[at]):04X}, at character {at:,}, which UTF-8 cannot write; "
        "fix it with text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')."
    )
