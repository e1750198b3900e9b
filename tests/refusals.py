"""Calls that must be refused."""

import pytest


def refused(error, words, call, *arguments, **options):
    """The call raises this error, with a message that matches the words."""
    with pytest.raises(error, match=words):
        call(*arguments, **options)
