"""The convex master (`mixture` objective) and the final weights.

Both minimise a smooth convex function of the weights over mixtures that meet the rows, by
sequential quadratic programming: value, gradient and Hessian in the space of the weights (one
number per member, however large the data), a quadratic program with the rows by Clarabel, a line
search. Why not one conic program? It would need cones of the size of the data and a hand-written
form of every loss; here any twice differentiable torch function will do, squared error takes one
step and the others a handful.

Optimality is not taken on the solver's word. For every weight vector l, convexity gives
`loss(l) >= loss(w) + gradient . (l - w)`, and for the linear right-hand side any row duals give a
bound in closed form; the difference to it is the certified gap. It needs only float64 arithmetic
on the full table of rows, so an inexact quadratic program costs steps but never correctness.

Sizes: everything is dense in the number of columns, meant for up to about 400; rows enter the
quadratic program only when violated, so tens of thousands of rows are fine. Where thousands of
them cannot be met at once, and so are all in it, they are eliminated first (`dense`).
"""

from cg4ai.colgen.master.convex.final import FinalWeights, compute_final_weights
from cg4ai.colgen.master.convex.master import ConvexMaster

__all__ = ["ConvexMaster", "FinalWeights", "compute_final_weights"]
