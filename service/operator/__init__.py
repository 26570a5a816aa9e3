"""A Kubernetes operator for `TrainingPlan`: objects of the cluster come in, a JobSet and its files go out.

Start at `reconcile.py`: a function of object, cluster and planner that returns a list of actions, and all
there is to decide. `plan_object.py` and `cluster_view.py` read what the API server holds, `planner.py` asks
for plans, `children.py` writes manifests, `loop.py` and `kube_api.py` carry actions out, and `handlers.py` is
run by kopf.
"""
