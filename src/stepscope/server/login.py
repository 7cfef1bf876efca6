"""Login page. It needs no script and no other file."""

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
<p>Log in with the token that <code>stepscope ui</code> printed when it was started.</p>
{error}<form method="post" action="/api/login">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button type="submit">Log in</button>
</form>
</main>
</body>
</html>
"""
_ERROR = '<p role="alert">The token is not correct.</p>\n'


def login_page(*, failed: bool = False) -> str:
    """Create the page, with an error message after a failed attempt."""
    return _PAGE.format(error=_ERROR if failed else "")
