"""Runs a query on the nodes of a Ray cluster: `python -m slackwater.ray run query.sql --hosts 1..4 …`.

    you ─► main.py: slackwater run ◄── sessions ──┬─ agent on node 1 ◄ keeper ◄ actor
             │  (no Ray in this process)          └─ agent on node 2 ◄ keeper ◄ actor
             └─ driver.py: asks the query how many hosts it wants, and Ray for them

Rows go from agent to agent, never through Ray. Whatever becomes of Ray, the query goes on with the agents
that it has; driver.py is started again until Ray is back.
"""
