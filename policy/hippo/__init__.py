"""Hi-PPO: a two-level PPO with a graph encoder that proposes plans, and a twin that checks them."""
