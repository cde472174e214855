"""What a page says."""


def facts(page, heading):
    """Return the facts of the section with a heading."""
    (found,) = [part for part in page.sections if part.heading == heading]
    return dict(found.known_facts)
