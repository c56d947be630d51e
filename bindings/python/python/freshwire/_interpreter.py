"""Which interpreter of the process this is."""

_REFUSAL = (
    "Freshwire works in the main interpreter of a process only, because its threads outlive no other: import it there; "
    "with mod_wsgi set `WSGIApplicationGroup %{GLOBAL}`"
)


def check():
    """Raise ImportError in a sub-interpreter, before the native module is loaded, which works in one interpreter of a process."""
    if _is_main() is False:
        raise ImportError(_REFUSAL, name="freshwire")


def _is_main():
    """Tell whether this is the main interpreter; None if the interpreter does not say."""
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = __import__(name)
            return interpreters.get_current() == interpreters.get_main()
        except (ImportError, AttributeError):
            continue
    return None
