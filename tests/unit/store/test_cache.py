"""The cache in memory: what it keeps, and for how long."""

from mitosis.store.cache import ExpiringCache


async def test_a_read_that_began_before_the_cache_was_cleared_is_not_kept() -> None:
    """A token that was revoked meanwhile would be good for seconds more."""
    cache = ExpiringCache[str, str](seconds=60, most=10)

    async def before() -> str:
        cache.clear()
        return "before"

    async def after() -> str:
        return "after"

    assert await cache.get("key", before) == "before"
    assert await cache.get("key", after) == "after"
    assert await cache.get("key", before) == "after"
