"""The packets between agent and zygote survive the wire, and nothing else passes for one."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mitosis.worker import zygote_protocol as z

numbers = st.integers(0, 2**31)
text = st.text(max_size=50)
cpus = st.none() | st.lists(numbers, max_size=8).map(tuple)

to_zygote = st.one_of(
    st.builds(
        z.Setup,
        manager_id=text,
        endpoint=text,
        task_group_id=text,
        task_group_number=numbers,
        task_group_name=text,
        group_name=text,
        scratch_folder=text,
        run_folder=text,
        handler_modules=st.lists(text, max_size=5).map(tuple),
        python_path=st.lists(text, max_size=5).map(tuple),
        environment=st.dictionaries(text, text, max_size=5),
        output_tail_bytes=numbers,
    ),
    st.builds(z.Spawn, numbers, numbers, cpus),
    st.builds(z.KillWorker, numbers, numbers),
)
seconds = st.floats(0, 1e9)
to_agent = st.one_of(
    st.builds(z.Ready, numbers, st.booleans(), st.none() | text, seconds),
    st.builds(z.ImportFailed, text, text, text),
    st.builds(z.Spawned, numbers, numbers, numbers),
    st.builds(z.SpawnFailed, numbers, numbers, text),
    st.builds(
        z.Exited,
        numbers,
        numbers,
        numbers,
        numbers,
        st.builds(z.ProcessUsage, seconds, seconds, numbers),
        st.integers(-1, 100),
        text,
        st.none() | st.tuples(numbers, numbers),
    ),
)


@given(to_zygote)
def test_what_the_agent_says_arrives_whole(packet: z.AgentToZygote) -> None:
    assert z.decode_for_zygote(z.encode(packet)) == packet


@given(to_agent)
def test_what_the_zygote_says_arrives_whole(packet: z.ZygoteToAgent) -> None:
    assert z.decode_for_agent(z.encode(packet)) == packet


@given(to_agent)
def test_no_packet_passes_in_the_other_direction(packet: z.ZygoteToAgent) -> None:
    with pytest.raises(z.ZygoteProtocolError):
        z.decode_for_zygote(z.encode(packet))


@given(st.binary(max_size=200))
@example(b"\x94\xabSpawnFailed\x00\x01\xa1\xff")  # a text that is no UTF-8
def test_noise_is_refused_and_never_crashes(noise: bytes) -> None:
    try:
        packet = z.decode_for_agent(noise)
    except z.ZygoteProtocolError:
        return
    assert isinstance(packet, z.ZygoteToAgent)


def test_a_packet_too_large_for_the_socket_is_refused_before_it_is_sent() -> None:
    huge = z.SpawnFailed(0, 1, "x" * z.MAX_PACKET_BYTES)
    with pytest.raises(z.ZygoteProtocolError, match="the limit is"):
        z.encode(huge)
