"""Update rules that a student writes: their form, their judge, and wrong rules to recognize.

Used by the exercises of notebooks 04 and 05:
    rules               `as_rule`: a formula in the form that a student writes; `altered`: the same with lines replaced
    judge               `judge_rule`: is a student's rule the right one, and which mistake does it make if not?
    velocity_mistakes   wrong rules for momentum, Nesterov's momentum and SGD with weight decay
"""
