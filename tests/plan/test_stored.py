from __future__ import annotations

import json

from anabranch.algebra.triggers import Triggers
from anabranch.plan.stored import from_json, to_json
from anabranch.plan.view import NodeEmission, NodeQuery, View


def test_triggers_survive_json() -> None:
    for triggers in (Triggers(), Triggers(3, 10, True, True, True), Triggers(delay=5), Triggers(end=True)):
        emission = NodeEmission("triggers", triggers=triggers)
        view = View("v", "v", "", None, (), "keyed", NodeQuery(""), emission=emission)
        assert from_json(json.loads(json.dumps(to_json(view)))) == view
