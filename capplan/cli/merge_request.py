"""One comment of a pull request of GitHub, or a merge request of GitLab, kept up."""

import json
import os
from functools import partial
from itertools import count
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from capplan.report.change_comment import MARK

_PER_PAGE = 100
_SECONDS = 30


def comment_here(text: str, creates: bool) -> str:
    """Write the comment of the job that runs, if it is of a pull or merge request.

    Return why there is none; empty where all is well.
    """
    of = os.environ.get
    pull, merge = of("PULL_REQUEST"), of("CI_MERGE_REQUEST_IID")
    try:
        if pull and (token := of("GITHUB_TOKEN")):
            url = of("GITHUB_API_URL") or "https://api.github.com"
            ask = partial(_ask, ("Authorization", f"Bearer {token}"))
            # A job's token may not ask REST whose it is.
            graphql = of("GITHUB_GRAPHQL_URL") or f"{url}/graphql"
            viewer = ask("POST", graphql, query="{viewer{login}}")["data"]["viewer"]
            me = {"login": viewer["login"]}
            issues = f"{url}/repos/{of('GITHUB_REPOSITORY')}/issues"
            comments = f"{issues}/{quote(pull, '')}/comments"
            _keep(ask, me, comments, (f"{issues}/comments", "PATCH"), text, creates)
        elif merge and (token := of("GITLAB_TOKEN")):
            url, ask = of("CI_API_V4_URL", ""), partial(_ask, ("PRIVATE-TOKEN", token))
            me = {"username": ask("GET", f"{url}/user")["username"]}
            merges = f"{url}/projects/{of('CI_PROJECT_ID')}/merge_requests"
            notes = f"{merges}/{quote(merge, '')}/notes"
            _keep(ask, me, notes, (notes, "PUT"), text, creates)
        elif pull or merge:
            return "the job has no token to write it"
    except HTTPError as error:
        may = ": the token may not write" if error.code in (401, 403, 404) else ""
        return f"HTTP {error.code} {error.reason}{may}"
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _keep(
    ask: Any, me: Any, comments: str, one: tuple[str, str], text: str, creates: bool
) -> None:
    """Update the comment that the token's own account wrote, or create it."""
    for page in count(1):
        found = ask("GET", f"{comments}?per_page={_PER_PAGE}&page={page}")
        for each in found:
            user = each.get("user") or each.get("author") or {}  # GitHub, GitLab
            is_own = me.items() <= user.items()
            if is_own and str(each["body"]).startswith(MARK):
                if each["body"].strip() != text.strip():
                    ask(one[1], f"{one[0]}/{each['id']}", body=text)
                return
        if len(found) < _PER_PAGE:
            break
    if creates:
        ask("POST", comments, body=text)


def _ask(token: tuple[str, str], method: str, url: str, **body: str) -> Any:
    data = json.dumps(body).encode() if body else None
    own = {"Content-Type": "application/json", "User-Agent": "capplan"}
    request = Request(url, data, own, method=method)
    request.add_unredirected_header(*token)  # to this host alone
    with urlopen(request, timeout=_SECONDS) as answer:
        return json.load(answer)
