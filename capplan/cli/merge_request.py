"""One comment of a pull request of GitHub, or a merge request of GitLab, kept up."""

import json
import os
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from capplan.report.change_comment import MARK

_PER_PAGE = 100
_SECONDS = 30
_OURS = ("OWNER", "MEMBER", "COLLABORATOR")


class Thread(NamedTuple):
    """Where comments are listed, and where one of them is."""

    comments: str
    one: str  # its id follows
    update: str  # HTTP method
    headers: Mapping[str, str]

    def write(self, text: str, *, creates: bool) -> str:
        """Update the comment, or create it; return why not, empty where it is done."""
        try:
            there = next(filter(_is_ours, self._all()), None)
            if there is not None:
                if there["body"].strip() != text.strip():
                    self._ask(self.update, f"{self.one}{there['id']}", {"body": text})
            elif creates:
                self._ask("POST", self.comments, {"body": text})
        except HTTPError as error:
            may = ": the token may not write" if error.code in (401, 403, 404) else ""
            return f"HTTP {error.code} {error.reason}{may}"
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def _all(self) -> Iterator[dict[str, Any]]:
        for page in count(1):
            url = f"{self.comments}?per_page={_PER_PAGE}&page={page}"
            yield from (found := self._ask("GET", url))
            if len(found) < _PER_PAGE:
                return

    def _ask(self, method: str, url: str, body: Mapping[str, str] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(
            url, data, {"Content-Type": "application/json"}, method=method
        )
        for name, value in self.headers.items():
            request.add_unredirected_header(name, value)  # to this host alone
        with urlopen(request, timeout=_SECONDS) as answer:
            return json.load(answer)


def _is_ours(comment: Mapping[str, Any]) -> bool:
    """Return whether it begins as ours, and not anybody may have written it."""
    user, by = comment.get("user") or {}, comment.get("author_association")
    is_ours = by in (None, *_OURS) or user.get("type") == "Bot"
    return is_ours and str(comment.get("body")).startswith(MARK)


def comment_here(text: str, creates: bool) -> str:
    """Write the comment of the job that runs, if it is of a pull or merge request.

    Return why there is none; empty where all is well.
    """
    of = os.environ.get
    pull, merge, thread = of("PULL_REQUEST"), of("CI_MERGE_REQUEST_IID"), None
    if pull and (token := of("GITHUB_TOKEN")):
        api = of("GITHUB_API_URL") or "https://api.github.com"
        issues = f"{api}/repos/{of('GITHUB_REPOSITORY', '')}/issues"
        headers = {"Authorization": f"Bearer {token}", "User-Agent": "capplan"}
        comments = f"{issues}/{quote(pull, safe='')}/comments"
        thread = Thread(comments, f"{issues}/comments/", "PATCH", headers)
    elif merge and (token := of("GITLAB_TOKEN")):
        project = f"{of('CI_API_V4_URL', '')}/projects/{of('CI_PROJECT_ID', '')}"
        notes = f"{project}/merge_requests/{quote(merge, safe='')}/notes"
        thread = Thread(notes, f"{notes}/", "PUT", {"PRIVATE-TOKEN": token})
    if thread is not None:
        return thread.write(text, creates=creates)
    return "the job has no token to write it" if pull or merge else ""
