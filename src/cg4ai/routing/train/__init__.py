"""The routing problem for column generation: objectives, members, anchors, shields."""
