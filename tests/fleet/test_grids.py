import pytest

from capplan.errors import InputError
from capplan.fleet.grids import grid_of


def test_the_grid_of_a_country_is_that_of_its_source():
    # codecarbon 3.3.2, global_energy_mix.json, 2023.
    assert [round(grid_of(name)[0]) for name in ("USA", "deu", "FRA")] == [369, 381, 56]
    assert grid_of("12.5") == (12.5, "given")


@pytest.mark.parametrize("text", ["mars", "-1", "9000", "nan"])
def test_a_grid_that_is_none_is_refused(text):
    with pytest.raises(InputError, match="grid"):
        grid_of(text)
