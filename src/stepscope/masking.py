"""Masking of secrets on command lines and in text, before they are stored.

A value is hidden for one of three reasons:

1. its form: prefixes and lengths that providers document (`ghp_…`, `AKIA…`, PEM blocks), passwords
   and tokens in URLs, and schemes of the Authorization header;
2. its name: `--db-pass X`, `WANDB_API_KEY=X`, `"password": "X"`, `?sig=X`. A name is split into
   words, and `_name_strength` looks at the last ones;
3. its randomness: a generated value under a name that may denote a secret (`--wandb-key`), or with
   no name at all if it is as long and as mixed as a generated key.

Forms follow the public rule sets of gitleaks (https://github.com/gitleaks/gitleaks, config/) and
detect-secrets (https://github.com/Yelp/detect-secrets). Neither is a dependency: both look for
secrets in files, take longer to load than the monitor, and know no names of options.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from enum import IntEnum

MASK = "****"
MAX_QUOTING_DEPTH = 4
"""Levels of quoted commands, as in `ssh node "sh -c '…'"`, whose words are looked at."""


class _Strength(IntEnum):
    """Evidence of a name that its value is a secret."""

    NONE = 0
    PUBLIC = 1
    """Digests and identifiers, which look random and are no secrets."""
    POSSIBLE = 2
    """The value decides: a random one is a secret."""
    SECRET = 3


# --- forms of values ------------------------------------------------------------------------------

_FORMS = re.compile(
    r"(?<![A-Za-z0-9_])(?:"
    r"sk-[A-Za-z0-9_-]{16,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"  # OpenAI, Anthropic, Stripe
    r"|(?:hf|api_org)_[A-Za-z0-9]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|oas)-[\w-]{16,}(?:\.[\w.]+)?"
    r"|(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}"
    r"|AIza[\w-]{30,}|ya29\.[\w.-]{16,}|GOCSPX-[\w-]{20,}"
    r"|xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}"
    r"|r8_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,}|pypi-[\w-]{16,}|dckr_pat_[\w-]{16,}"
    r"|nvapi-[\w-]{20,}|gsk_[A-Za-z0-9]{20,}|wandb_v1_\w{20,}|lsv2_\w{20,}|pplx-[A-Za-z0-9]{20,}"
    r"|dapi[0-9a-f]{32}|hv[sb]\.[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|eyJ[\w-]{10,}(?:\.[\w-]{10,}[\w.-]*|[\w+/-]{24,}=*)"  # JSON Web Tokens, Neptune's tokens
    r")"
)
_PRIVATE_KEY = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----)(?:.*?(?=-----END)|.*)", re.DOTALL)
_URL_USER = re.compile(r"(?<=://)([^/?#@:\s\"']*)(?::([^/\s\"']+))?@(?=[\w\[$*])")
_WEB = ("http://", "https://")
"""Schemes with which the user in a URL without a password is a token; that of ssh is a name, and
that of abfss a container."""
_SCHEME = re.compile(r"(?i)\b((?:bearer|basic|digest|token)\s+)([A-Za-z0-9._~+/-]{8,}=*)")
_WEBHOOK = re.compile(
    r"(?i)(?<=://)((?:hooks\.slack\.com|(?:\w+\.)?discord(?:app)?\.com/api/webhooks"
    r"|[\w-]+\.webhook\.office\.com|api\.telegram\.org)/)[^\s\"']+"
)
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_BARE = re.compile(r"(?<![\w+/=.:@-])[\w+/-]{30,}={0,2}(?![\w+/=.@-])")
WANDB_KEY_LENGTH = 40
"""Hexadecimal digits of a key of Weights & Biases; SHA-1 digests are as long."""

# --- names of values ------------------------------------------------------------------------------

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_WORDS = frozenset({
    "password", "passwords", "passwd", "passphrase", "passcode", "pass", "pwd", "pw",
    "secret", "secrets", "credential", "credentials", "creds", "token", "auth",
    "authorization", "jwt", "cookie", "sig", "signature", "sas", "pat", "apikey", "accesskey",
    "secretkey", "privatekey", "authkey", "accesstoken", "authtoken",
})  # fmt: skip
_SECRET_ENDS = ("password", "passwd", "passphrase", "secret")
"""As in `PGPASSWORD`."""
_CONTAINERS = frozenset({"secret", "secrets", "credential", "credentials", "creds", "passwords"})
"""Sections of a configuration with secrets only, as in `secrets.db=X`."""
_LEAF_SETTINGS = frozenset({
    "file", "path", "dir", "name", "backend", "provider", "type", "url", "enabled", "store",
})  # fmt: skip
"""Words after which an entry of such a section is a setting: `secrets.backend=vault`."""
_KEY_OWNERS = frozenset({
    "api", "access", "private", "secret", "signing", "encryption", "auth", "account",
    "storage", "shared", "master", "client", "subscription", "deploy", "license",
})  # fmt: skip
"""Words before `key` with which it denotes a secret; other keys sort, index or attend."""
_QUALIFIERS = frozenset({
    "header", "headers", "value", "string", "text", "hex", "base64", "b64", "raw", "prod",
    "production", "dev", "staging",
})  # fmt: skip
"""Words after that of the secret with which the value still is the secret."""
_VOCABULARY = frozenset({
    "pad", "eos", "bos", "unk", "cls", "sep", "mask", "special", "stop", "start", "end",
    "begin", "image", "img", "audio", "video", "prefix", "suffix", "first", "last", "next",
    "per", "text", "vocab", "decoder", "encoder", "bad", "forced", "eot", "boi", "eoi",
})  # fmt: skip
"""Words before `token` in the sense of tokenizers."""
_COUNTS = frozenset({"n", "num", "max", "min", "count", "total"})
_SWITCHES = frozenset({
    "use", "no", "require", "required", "save", "skip", "show", "has", "is", "needs",
    "enable", "disable", "allow", "with", "without", "print", "ask", "prompt",
})  # fmt: skip
_PUBLIC_WORDS = frozenset({
    "commit", "sha", "sha1", "sha256", "rev", "revision", "ref", "hash", "digest", "md5",
    "checksum", "checkout", "etag", "id", "uuid", "run", "version", "tag", "snapshot",
    "fingerprint", "branch",
})  # fmt: skip
_UNHIDDEN = re.compile(
    r"(?i)|true|false|yes|no|on|off|none|null|auto|basic|digest|bearer|oauth2?|iam|kerberos|ldap"
    r"|<[^>]*>|\[[A-Z]+\]|\$\w+|\$\{[^}]*\}|\$\([^)]*\)|\*+|[A-Za-z_][\w.]*[(\[].*"
)
"""Switches, methods, special tokens of a vocabulary, references to variables, and expressions."""
_PATH = re.compile(r"(?:~|\.{1,2})?/(?:[\w.-]+/)*[\w.-]*")

_PAIR = re.compile(
    r"(?<![\w.+/~-])(?P<name>[\w.+/~-]+)(?P<sign>\\?[\"']?\]?\s*(?:=(?!=)|:(?![:/\\=]))\s*)"
    r"(?:(?P<quote>\\?[\"'])(?P<quoted>.*?)(?P=quote)|(?P<plain>[^\s\"'&,;)}\]]+))"
)
_SHELL_WORD = re.compile(r"(?:\"[^\"]*\"|'[^']*'|[^\s\"'])+|[\"']")

_SHORT_OPTIONS = {
    "mysql": "p", "mysqldump": "p", "mysqladmin": "p", "mariadb": "p", "sshpass": "p",
    "redis-cli": "a", "mongo": "p", "mongosh": "p", "mongodump": "p", "ldapsearch": "w",
}  # fmt: skip
"""Short options with a password, whether attached or as the next word."""
_OTHER_P = frozenset({
    "ssh", "scp", "sftp", "ssh-copy-id", "srun", "sbatch", "salloc", "squeue", "sinfo",
    "pytest", "mkdir", "cp", "tar", "rsync", "ps", "unzip", "flit", "make", "git", "nmap",
    "mpirun", "mpiexec", "perl", "ruby", "cmake",
})  # fmt: skip
"""Programs with another -p: a port, a partition, a plugin."""


def mask(command: Sequence[str]) -> list[str]:
    """Replace the values of secrets on a command line.

    >>> mask(["train.py", "--api-key", "k1", "--wandb-token=t2", "s3://u:p@host/x"])
    ['train.py', '--api-key', '****', '--wandb-token=****', 's3://u:****@host/x']
    """
    return _mask_words(command, MAX_QUOTING_DEPTH)


def mask_text(text: str) -> str:
    """Replace what looks like a secret in a text, such as a shell command or a line of source.

    >>> mask_text('headers = {"Authorization": "Bearer abcdefgh12345"}')
    'headers = {"Authorization": "Bearer ****"}'
    """
    return _mask_shell(text, MAX_QUOTING_DEPTH)


def _mask_words(command: Sequence[str], depth: int) -> list[str]:
    programs = {word.rpartition("/")[2] for word in command[:4] if not word.startswith("-")}
    programs |= {word for before, word in itertools.pairwise(command) if before == "-m"}
    masked: list[str] = []
    previous = ""
    for word in command:
        value = _mask_option_value(previous, word, programs)
        if value is None:
            value = _mask_attached(word, programs)
        if value is None and depth > 0 and any(map(str.isspace, word)):
            value = _mask_shell(word, depth - 1)
        masked.append(_mask_word(word, previous, programs) if value is None else value)
        previous = word
    return masked


def _mask_shell(text: str, depth: int) -> str:
    """Mask a text as a whole, for pairs across words, and its words, which may be in quotes."""
    text = _mask_values(text)
    matches = list(_SHELL_WORD.finditer(text))
    quotes = [match[0][0] if _is_quoted(match[0]) else "" for match in matches]
    words = [
        match[0][1:-1] if quote else match[0] for match, quote in zip(matches, quotes, strict=True)
    ]
    parts: list[str] = []
    position = 0
    for match, quote, word in zip(matches, quotes, _mask_words(words, depth), strict=True):
        parts += [text[position : match.start()], quote, word, quote]
        position = match.end()
    return "".join([*parts, text[position:]])


def _is_quoted(word: str) -> bool:
    return len(word) > 1 and word[0] == word[-1] and word[0] in "\"'"


def _mask_option_value(option: str, value: str, programs: set[str]) -> str | None:
    """Mask the word after an option; None if its name says nothing about it."""
    if "=" in option or not option or re.match(r"--?[A-Za-z]", value) is not None:
        return None
    if not option.startswith("-"):  # as in `aws configure set aws_secret_access_key X`
        is_name = "_" in option and _name_strength(option) == _Strength.SECRET
        return MASK if is_name and _is_random(value) else None
    name = option.lstrip("-")
    if _words(name)[-1:] in (["user"], ["u"]) and _is_user_with_password(value):
        return f"{value.partition(':')[0]}:{MASK}"
    if len(name) == 1:
        is_secret = any(name in _SHORT_OPTIONS.get(program, "") for program in programs)
        if is_secret or (name == "p" and _is_short_password(value, programs)):
            return MASK
        return None
    return _mask_named(name, value)


def _mask_attached(word: str, programs: set[str]) -> str | None:
    """Mask the value in `-pVALUE`; None for other words."""
    option, value = word[:2], word[2:]
    if not value or option[0] != "-" or option[1] == "-":
        return None
    is_secret = any(option[1] in _SHORT_OPTIONS.get(program, "") for program in programs)
    return option + MASK if is_secret else None


def _mask_word(word: str, previous: str, programs: set[str]) -> str:
    """Mask what a word itself says to be a secret."""
    masked = _mask_values(word)
    public = "git" in programs or _name_strength(previous) == _Strength.PUBLIC
    return masked if public else _BARE.sub(_mask_bare, masked)


def _mask_values(text: str) -> str:
    """Mask known forms, passwords in URLs, and named values."""
    text = _FORMS.sub(MASK, _PRIVATE_KEY.sub(rf"\1{MASK}", text))
    text = _SCHEME.sub(_mask_scheme, _WEBHOOK.sub(rf"\1{MASK}", _URL_USER.sub(_mask_user, text)))
    return "".join(_mask_pairs(text))


def _mask_pairs(text: str) -> Iterator[str]:
    """Mask `name=value` and `name: value`; a value that is no secret may contain pairs itself."""
    position = 0
    while match := _PAIR.search(text, position):
        group = "plain" if match["quote"] is None else "quoted"
        masked = _mask_named(match["name"], match[group])
        if masked is None:
            end = match.start(group)
            yield text[position:end]
        else:
            end = match.end(group)
            yield text[position : match.start(group)] + masked
        position = end
    yield text[position:]


def _mask_named(name: str, value: str) -> str | None:
    """Mask a value by its name; None if the name does not make it a secret."""
    strength = _name_strength(name)
    if MASK in value or _UNHIDDEN.fullmatch(value):
        return None
    if strength == _Strength.SECRET or (strength == _Strength.POSSIBLE and _is_random(value)):
        return MASK
    return None


def _mask_user(match: re.Match[str]) -> str:
    user, password = match[1], match[2]
    if password is not None:
        return f"{user}:{MASK}@"
    scheme = match.string[max(0, match.start() - len(_WEB[-1])) : match.start()]
    is_token = scheme.lower().endswith(_WEB) and not _UNHIDDEN.fullmatch(user)
    return f"{MASK}@" if is_token or _is_random(user) else match[0]


def _mask_scheme(match: re.Match[str]) -> str:
    return match[0] if match[2].isalpha() and match[2].islower() else match[1] + MASK


def _mask_bare(match: re.Match[str]) -> str:
    value = match[0]
    if _HEX.fullmatch(value):
        return MASK if len(value) == WANDB_KEY_LENGTH else value
    return MASK if _is_mixed(value) and not _PATH.fullmatch(value) else value


def _name_strength(name: str) -> _Strength:
    """Judge the name of an option, variable, field or parameter by its words."""
    *sections, leaf = [_words(section) for section in name.split(".")]
    strength = _leaf_strength(leaf)
    if strength == _Strength.NONE and any(set(words) & _CONTAINERS for words in sections):
        return _Strength.SECRET if not set(leaf) & _LEAF_SETTINGS else strength
    return strength


def _leaf_strength(words: list[str]) -> _Strength:
    while words and (words[-1] in _QUALIFIERS or words[-1].isdigit()):
        words = words[:-1]
    if not words:
        return _Strength.NONE
    *before, last = words
    if last in {"key", "keys"}:
        is_secret = bool(before) and before[-1] in _KEY_OWNERS
        return _Strength.SECRET if is_secret else _Strength.POSSIBLE
    if last in _SECRET_WORDS or last.endswith(_SECRET_ENDS):
        is_setting = set(before) & (_SWITCHES | _COUNTS) or (
            last == "token" and before and before[-1] in _VOCABULARY
        )
        return _Strength.POSSIBLE if is_setting else _Strength.SECRET
    return _Strength.PUBLIC if last in _PUBLIC_WORDS else _Strength.NONE


def _words(name: str) -> list[str]:
    """Split a name into lower-case words at separators and capitals."""
    return [word.lower() for word in _WORD.findall(name)]


def _is_user_with_password(value: str) -> bool:
    user, colon, password = value.partition(":")
    return bool(user and colon and password) and not password.isdigit() and "/" not in user


def _is_short_password(value: str, programs: set[str]) -> bool:
    """Judge the value of `-p` for a program that may mean a port, a path or a name by it."""
    is_known = programs & _OTHER_P or ({"docker", "podman"} & programs and "login" not in programs)
    is_word = re.fullmatch(r"[a-z_-]*|[\d.:/-]*(?:tcp|udp)?|.*[=:/].*", value)
    return not is_known and is_word is None


def _is_random(value: str) -> bool:
    """Check for a generated value: long, with letters and digits that alternate.

    Half of the neighbours in a random hexadecimal text belong to different classes; in words with
    a number at the end it is one in ten.
    """
    return (
        len(value) >= 16
        and " " not in value
        and any(map(str.isdigit, value))
        and any(map(str.isalpha, value))
        and not _PATH.fullmatch(value)
        and _alternation(value) >= 0.22
    )


def _is_mixed(value: str) -> bool:
    """Check for a text over at least 62 characters, in the order of a generator."""
    classes = {_character_class(character) for character in value}
    return {"digit", "lower", "upper"} <= classes and _alternation(value) >= 0.45


def _alternation(value: str) -> float:
    """Return the share of neighbours of different classes (digit, lower, upper case)."""
    classes = [_character_class(character) for character in value if character.isalnum()]
    pairs = list(itertools.pairwise(classes))
    return sum(a != b for a, b in pairs) / max(1, len(pairs))


def _character_class(character: str) -> str:
    if character.isdigit():
        return "digit"
    if not character.isalpha():
        return "other"
    return "lower" if character.islower() else "upper"
