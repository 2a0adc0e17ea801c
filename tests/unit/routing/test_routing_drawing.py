"""Where nodes and links lie in the picture of a network."""

from dataclasses import replace

import numpy as np

from cg4ai.routing import instance
from cg4ai.routing.network.layout import draw_network


def test_links_on_no_path_are_in_the_picture() -> None:
    made = instance("abilene")
    picture = draw_network(made)
    used = {node for arc in made.arcs for node in arc}
    assert picture.unused == [("ATLAM5", "ATLAng")]
    assert set(picture.nodes) - used == {"ATLAM5"}
    older = draw_network(replace(made, all_arcs=None))
    assert older.unused == []
    assert set(older.nodes) == used


def test_nodes_lie_inside_and_north_is_up_with_or_without_positions() -> None:
    made = instance("abilene")
    assert made.positions is not None
    for one in (made, replace(made, positions=None)):
        picture = draw_network(one)
        places = np.array(list(picture.places.values()))
        assert np.all(places > 0)
        assert np.all(places < picture.size)
        assert len(np.unique(places, axis=0)) == len(places)
    placed = draw_network(made).places
    north = sorted(placed, key=lambda name: -made.positions[name][1])
    assert north == sorted(placed, key=lambda name: placed[name][1])
