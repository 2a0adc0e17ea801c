def can_continue(out: Path, folder: Path) -> bool:
    """Whether a folder holds an update of a run that has not come to its end."""
    if not (out / "run.json").exists():
        return False
    run = Run.open(out, read_only=True)
    description = run.settings.get(DESCRIPTION) or {}
    summary = run.summary(compared=False)
    ended = summary is not None and complete(summary)
    return not ended and description.get(UPDATE_OF) == str(folder.absolute())
