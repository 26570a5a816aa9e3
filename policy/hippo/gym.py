"""Public address of the environments, `policy.hippo.gym:twin/Plan-v0`; they lie in `policy.hippo.env.gym`."""

from policy.hippo.env.gym import PLAN as PLAN
