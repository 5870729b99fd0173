"""Probe texts: does a pattern cut them, and do other libraries cut them alike?"""

import contextlib
import functools
import itertools
import json
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

import regex

from dist_bpe.errors import UsageError
from dist_bpe.pretokenize.patterns import KNOWN_NAMES, PATTERNS, Pattern, PatternTimeoutError, compile_regex, find


@functools.cache
def resolve(text: str) -> Pattern:
    """The pattern of a name or text, as `find`, once it is seen to cut the probe texts.

    Raises:
        UsageError: an unknown name; a text that does not compile, matches nothing, or splits nothing.
    """
    pattern = find(text)
    if pattern.name is not None:
        return pattern
    try:
        cut = [pattern.pieces(probe, PROBE_SECONDS) for probe in PROBES]
    except PatternTimeoutError as error:
        raise UsageError(str(error)) from error
    compiled = compile_regex(pattern.regex)
    if not any(match.group() for probe in PROBES for match in compiled.finditer(probe)):
        raise UsageError(
            f"the pattern {text!r} matches nothing in texts of {len(PROBES)} kinds (32 scripts, code, digits, white "
            f"space), so each document would be one word; the patterns with a name are: {KNOWN_NAMES}."
        )
    if all(sum(map(bool, pieces)) == 1 for pieces in cut):
        raise UsageError(
            f"the pattern {text!r} splits nothing: it takes each text as one word; the patterns with a name are: "
            f"{KNOWN_NAMES}."
        )
    return pattern


#: How long a pattern may take for a probe: a thousand times what a usual one does.
PROBE_SECONDS = 1.0
#: And for a longer text, after which it is called slow.
SLOW_SECONDS = 1.0
SLOW_LENGTH = 30_000


@functools.cache
def slow_text(pattern: Pattern) -> str | None:
    """A short text on which a pattern tries for longer than a second, of those that are known to make patterns slow.

    Runs of one kind of character, as long documents have them (rulers, base64, indentation), and of the pattern's own
    letters, which end in a character that does not go on.
    """
    own: list[str] = sorted(set(regex.sub(r"\\[pPN]\{[^}]*\}|\\.", "", pattern.regex)))
    own = [character for character in own if character.isalnum()][:20]
    units = ["a", " ", "0", "-", "\n", "A", "\u093f", "a ", "aA", *own]
    for unit in units:
        # Thirty are enough for one that doubles its steps with each character, the others are for squares.
        for number in (30, SLOW_LENGTH):
            text = unit * number + "\x00"
            try:
                pattern.pieces(text, SLOW_SECONDS)
            except PatternTimeoutError:
                return text
    return None


def warnings_for(pattern: Pattern) -> list[str]:
    """What a user of a custom pattern should know before counting: where a library would cut the probe texts otherwise.

    Also where it would take long. Each library is asked if it is installed. The named patterns are not asked about: the
    tests of this package hold them equal, and each export is compared again.
    """
    if pattern.name is not None:
        return []
    shown = f"the pattern {pattern.regex!r}"
    warnings = []
    slow = slow_text(pattern)
    if slow is not None:
        what = repr(slow) if len(slow) < 100 else f"{len(slow):,} characters that begin with {slow[:9]!r}"
        warnings.append(
            f"{shown} takes more than a second for {what}: it tries the same characters again and again, and on a "
            "longer text of that kind it will be stopped by an error. Possessive repetitions, such as \\w++, do not."
        )
    whole = sum(len(pattern.words(probe)) == 1 for probe in PROBES)
    if 2 * whole > len(PROBES):
        warnings.append(
            f"{shown} leaves {whole} of {len(PROBES)} probe texts whole: words can be as long as documents."
        )
    if leaves_text(pattern):
        warnings.append(
            f"{shown} leaves text between its matches: it is kept as words of its own, and in `tokenizers` too, but "
            r"`tiktoken` drops it; end the pattern with |[\s\S] to take every such character as a word."
        )
        libraries = {"tokenizers": differs_in_tokenizers}
    else:
        libraries = {"tokenizers": differs_in_tokenizers, "tiktoken": differs_in_tiktoken}
    for library, differs in libraries.items():
        try:
            probe = differs(pattern, PROBES)
        except ImportError:
            continue
        except NoEngineError:
            warnings.append(
                f"the release of `{library}` that is installed has no regex engine and does not know {shown}: the "
                "vocabulary will be of no use there, but in releases before 1.0."
            )
            continue
        except ValueError as error:
            warnings.append(f"`{library}` cannot read {shown} ({error}): the vocabulary will be of no use there.")
            continue
        if probe is not None:
            warnings.append(
                f"`{library}` cuts {probe!r} otherwise by {shown}: the vocabulary will give other ids there."
            )
    return warnings


def leaves_text(pattern: Pattern) -> bool:
    """Whether a pattern leaves text of the probes between its matches."""
    compiled = compile_regex(pattern.regex)
    return any(sum(len(match.group()) for match in compiled.finditer(probe)) < len(probe) for probe in PROBES)


@functools.cache
def keeps_marks(pattern: Pattern) -> bool:
    """Whether a pattern keeps combining marks with their letters, in every script of the probes."""
    return not any(
        unicodedata.category(piece[0])[0] == "M" and unicodedata.category(before[-1])[0] in "LM"
        for probe in PROBES
        for before, piece in itertools.pairwise(piece for piece in pattern.pieces(probe) if piece)
    )


def syllable_advice(pattern: Pattern) -> str | None:
    """Which patterns to take instead of one that cuts syllables apart; None for one that does not.

    Words that begin with a mark come by such a pattern, too: after signs, emoji (U+FE0F) and white space. No other
    pattern would spare them.
    """
    if keeps_marks(pattern):
        return None
    better = [name for name, other in PATTERNS.items() if "+" not in name and name != "none" and keeps_marks(other)]
    return f"the patterns {', '.join(better[:-1])} and {better[-1]} keep marks with their letters."


@contextlib.contextmanager
def panics_as_errors() -> Iterator[None]:
    """A panic of a library in Rust, such as an engine's that has tried for too long, becomes a ValueError.

    Its class is no `Exception`, and cannot be imported.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(str(error)) from error


class NoEngineError(ValueError):
    """A release of `tokenizers` without a regex engine (1.0 as it is on PyPI), and a text that it does not know."""


def differs_in_tokenizers(pattern: Pattern, texts: Iterable[str]) -> str | None:
    """The first of some texts that Hugging Face `tokenizers` cuts otherwise by a pattern.

    Releases from 1.0 on show no cuts, only ids. So the words are a vocabulary of whole words, in a file for the
    library's own reader: what is none of them has the id 0, and other words have other ids.

    Raises:
        ImportError: it is not installed.
        NoEngineError: it reads no patterns but those it knows, and this is none of them.
        ValueError: its engine does not read the pattern.
    """
    from tokenizers import Tokenizer

    cut = [(text, [piece for piece in pattern.pieces(text) if piece]) for text in texts]
    ids = {"": 0}
    for _, words in cut:
        for word in words:
            ids.setdefault(word, len(ids))
    content = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pattern.tokenizers_steps},
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": ""},
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises no narrower class
            raise ValueError(str(error)) from error
    for text, words in cut:
        try:
            with panics_as_errors():
                found = tokenizer.encode(text, add_special_tokens=False).ids
        except ValueError as error:
            raise (NoEngineError(str(error)) if "regex backend" in str(error) else error) from error
        if found != [ids[word] for word in words]:
            return text
    return None


def differs_in_tiktoken(pattern: Pattern, texts: Iterable[str]) -> str | None:
    """The first of some texts that `tiktoken` cuts otherwise by a pattern.

    It shows no cuts, only ids. So each text gets a vocabulary that gives the cuts away: every word is a token, and so
    are the two bytes across every border, of lower rank than all words. A piece that is one of the words becomes that
    one token, since whole pieces are looked up first; a piece that holds a border has its two bytes merged before all
    else; and a piece that is less than a word is not the word's token.

    Raises:
        ImportError: it is not installed.
        ValueError: its engine does not read the pattern.
    """
    import tiktoken

    for text in texts:
        words = pattern.words(text)
        ranks = {bytes([byte]): byte for byte in range(256)}
        for before, after in itertools.pairwise(words):
            ranks.setdefault(before[-1:] + after[:1], len(ranks))
        for word in words:
            ranks.setdefault(word, len(ranks))
        with panics_as_errors():
            encoding = tiktoken.Encoding(
                "probe", pat_str=pattern.tiktoken_regex, mergeable_ranks=ranks, special_tokens={}
            )
            found = encoding.encode_ordinary(text)
        if found != [ranks[word] for word in words]:
            return text
    return None


PROBES: tuple[str, ...] = (
    # 32 scripts: a greeting or two, a number, and the punctuation of the place.
    "Good morning, world! The year has 365 days.",
    "Grüße aus Köln, déjà-vu à l'été, Łódź, İstanbul, xin chào các bạn.",
    "Καλημέρα, κόσμε! Τι κάνεις σήμερα; 24 ώρες.",
    "Доброе утро, мир! Ещё 7 дней; щука — рыба.",
    "Բարի լույս, աշխարհ։ 100 տարի։",
    "დილა მშვიდობისა, სამყარო! 12 თვე.",
    "שלום עולם, בֹּקֶר טוֹב! יש 7 ימים.",
    "صباح الخير يا عالم، السَّلَامُ عَلَيْكُمْ ١٢٣٤ يوم؟",
    "नमस्ते दुनिया! हिन्दी में १२३ शब्द हैं।",
    "নমস্কার বিশ্ব! বাংলায় ৪৫ শব্দ।",
    "ਸਤ ਸ੍ਰੀ ਅਕਾਲ ਦੁਨੀਆ! ੬੭ ਦਿਨ।",
    "નમસ્તે દુનિયા! ગુજરાતી ૮૯.",
    "ନମସ୍କାର ବିଶ୍ୱ! ଓଡ଼ିଆ ୧୨।",
    "வணக்கம் உலகம்! தமிழ் மொழி 30.",
    "నమస్కారం ప్రపంచం! తెలుగు ౪౫.",
    "ನಮಸ್ಕಾರ ಜಗತ್ತು! ಕನ್ನಡ ೬೭.",
    "നമസ്കാരം ലോകം! മലയാളം ൮൯.",
    "ආයුබෝවන් ලෝකය! සිංහල 15.",
    "สวัสดีชาวโลก วันนี้ที่ ๒๕ อากาศดีมาก",
    "ສະບາຍດີ ໂລກ ໑໒",
    "བཀྲ་ཤིས་བདེ་ལེགས། འཛམ་གླིང་ ༡༢",
    "မင်္ဂလာပါ ကမ္ဘာ ၁၂၃။",
    "សួស្តី ពិភពលោក ១២៣។",
    "ሰላም ዓለም፣ ፲፪ ወራት።",
    "ᎣᏏᏲ ᎡᎶᎯ 5.",
    "ᠰᠠᠶᠢᠨ ᠪᠠᠶᠢᠨ᠎ᠠ ᠤᠤ ᠑᠒",
    "你好，世界！今天是2024年5月1日。",
    "こんにちは、せかい！ｶﾀｶﾅ ３つ。",
    "コンピューター・プログラム１２",
    "안녕하세요, 세계! 오늘은 5월 1일입니다.",
    "ܫܠܡܐ ܥܠܡܐ ߊߞߋ ⵣⵓⵍ",
    # Code: indentation by spaces and tabs, operators, names, blank lines with white space in them.
    "def f(x):\n    if x >= 10:\n        return x_y['key'] != \"b\\n\"\n\n    return -1  # done\n",
    "\tfor (int i = 0; i < n; ++i) {\n\t\ta[i] += b->c;\r\n\t}\r\n",
    '<a href="https://example.org/p?q=1&r=2#top">x</a>\n  \n\t \n{"k": [1, 2.5e-3, null]}',
    # Digits: one to seven, with separators, of other scripts, fractions, Roman numerals, ideographs.
    "1 12 123 1234 12345 123456 1234567 3.14159 1,000,000 0x1F 007 2e10",
    "½ ²³ Ⅷ ٣٤٥٦ ३४५६ 〇一二三 ①② 𝟘𝟙𝟚𝟛",
    # Apostrophes: contractions in both cases, typographic, stacked; U+017F, an s to engines that fold case.
    "don't DON'T I'll I'LL we've WE'VE you're'd it's IT'S 'tis ''s 'rE o’clock '",
    "a'ſ 12",
    # White space: runs before words, at line ends, before the end, alone; the kinds engines disagree on.
    "a  b   c    d\n\n\ne \n f\t\t g",
    "a\r\n\r\nb\rc \r\n d\n \n",
    "x  \n\n y ",
    "end of text \n  ",
    "   \n\t\n   ",
    "\n",
    "a\u00a0\u00a0b\u2003c\u3000\u3000d\u2028e\u2029f\u0085g\u0085\n\u1680h",
    "a\x0b\x0cb\x1c\x1d\x1e\x1fc\u200b\u200d\ufeffd\u180ee\u2060",
    "\x00\x01 \x7f\x00",
    # Symbols and emoji: skin tones, joined families, flags, keycaps, surrogate pairs in UTF-16.
    "🙂🙃 👩🏽‍💻 👨‍👩‍👧‍👦 🇮🇹🇰🇷 1️⃣ ❤️ ☃︎ 𝒳𝓎 🜁",
    "€5 £6 ¥7 ± × ÷ √ ∞ ≠ → … «quoted» „low“ ‘single’ — – ‐ §¶ ©®™",
    "!!! ??? ... ---- ==== //// **bold** __init__ ~~~ `x` @user #tag $VAR %d ^ & |",
    # Combining marks: decomposed letters, several on one, at the start, after a space and a digit.
    "e\u0301te\u0301 a\u0308\u0301o\u0327 \u0301x 1\u0301 \u20dd a\u0301\u0302\u0303b हि\u0903न्दी\u094d",
)
"""Texts on which engines are compared: 32 scripts, code, digits, apostrophes, white space, symbols, combining marks.

Only code points that every engine has long known: on newer letters the Unicode tables differ, see docs/patterns.md.
"""
