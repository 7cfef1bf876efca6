"""The page that asks for the token. It needs no script and no other file."""

from __future__ import annotations

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>stepscope: log in</title>
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }}
body {{ display: grid; place-items: center; min-height: 90vh; margin: 0; }}
main {{ max-width: 26rem; padding: 1.5rem; }}
h1 {{ font-size: 1.25rem; margin: 0 0 .5rem; }}
input, button {{ font: inherit; padding: .5rem .75rem; box-sizing: border-box; width: 100%; }}
button {{ margin-top: .75rem; }}
[role=alert] {{ font-weight: 600; }}
</style>
</head>
<body>
<main>
<h1>stepscope</h1>
<p>This server shows its runs to those who know its token. <code>stepscope ui</code> printed it when
it was started.</p>
{wrong}<form method="post" action="/api/login">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button type="submit">Log in</button>
</form>
</main>
</body>
</html>
"""
_WRONG = '<p role="alert">That is not the token.</p>\n'


def login_page(*, wrong: bool = False) -> str:
    """The page, after an attempt that failed saying so."""
    return _PAGE.format(wrong=_WRONG if wrong else "")
