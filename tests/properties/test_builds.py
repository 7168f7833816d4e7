"""Writers beside the builds of their code for other archs, by spec and by id."""

from __future__ import annotations

from pathlib import Path

import pytest
from wheels import HOME, release_name, store_cubin, store_object, write_wheel

from oracle.errors import UsageError
from oracle.properties.builds import COMPARED_ARCHS, other_builds, writers_of
from oracle.properties.case import StoreCase
from oracle.properties.promises import PROMISES
from oracle.subjects.release import ArtifactOptions


@pytest.mark.parametrize("spec", ["store-sm100", "store:k=linear,v=inverse_4x4,search=4over6"])
def test_the_store_kernel_is_compared_with_builds_of_the_same_layouts(spec: str) -> None:
    for dtype in ("bf16", "fp16"):
        [writer] = writers_of(spec, (), (dtype,))
        others = other_builds(writer)
        assert {writer.info.arch, *(other.info.arch for other in others)} == set(COMPARED_ARCHS)
        for other in others:
            assert other.info.id == writer.info.id.replace("sm_100a", str(other.info.arch))
            assert other.info.declared == writer.info.declared
            assert other.info.scale_search is writer.info.scale_search
            assert other.info.dtypes == (dtype,)


def test_an_id_names_its_writer_again() -> None:
    for writer in writers_of("store", ("sm_90",), ("bf16", "fp16")):
        [again] = writers_of(writer.info.id, (), ("bf16", "fp16"))
        assert again.info == writer.info
        assert len(other_builds(again)) == len(COMPARED_ARCHS) - 1


def test_what_has_one_build_says_so() -> None:
    [writer] = writers_of("reference:k=linear,v=linear")
    promise = PROMISES["equal-across-archs"]
    assert promise.inapplicable(writer, None) == f"{writer.info.id} is there for one arch only"


def test_a_kernel_of_a_release_is_named_by_its_id_and_compared_with_the_others(
    tmp_path: Path,
) -> None:
    code = [(arch, store_cubin(arch, "bf16", 0)) for arch in ("sm_100f", "sm_120f")]
    write_wheel(tmp_path / release_name("9.9.9"), {HOME: store_object(*code)})
    options = ArtifactOptions(tmp_path, offline=True)
    found = writers_of("vllm==9.9.9", (), ("bf16",), options)
    assert [writer.info.arch for writer in found] == ["sm_100f", "sm_120f"]
    [again] = writers_of("vllm==9.9.9:sm_120f/bf16/max6", (), ("bf16", "fp16"), options)
    assert again.info == found[1].info
    assert [other.info.id for other in other_builds(again)] == [found[0].info.id]
    case = StoreCase(1, 4, 1, 64, "HND", "bf16", (2,), "normal")
    assert PROMISES["equal-across-archs"].check(again, None, case) is None
    with pytest.raises(UsageError, match=r"kernels of vllm==9\.9\.9 for bf16: sm_100f/bf16/max6"):
        writers_of("vllm==9.9.9:sm_90/bf16/max6", (), ("bf16",), options)
