"""A training loop of your own, around an algorithm of odice.

python examples/own_loop.py [LOG]
"""

import sys

import jax

import odice

STEPS = 500


def main(log: str) -> odice.Policy:
    data = odice.load(log)
    algo = odice.make("odice", data.spec, value_lr=1e-3, policy_lr=1e-3)
    state, update = algo.init(jax.random.key(0)), jax.jit(algo.update)
    for step, (batch, key) in enumerate(odice.batches(data, batch_size=256, steps=STEPS, seed=0)):
        state, metrics = update(state, batch, key)
        if step % 100 == 0:
            print(step, f"value loss {metrics['value_loss']:.3f}, policy loss {metrics['policy_loss']:.3f}")
    return odice.Policy.from_network(algo.policy(state).deterministic())


if __name__ == "__main__":
    policy = main(sys.argv[1] if len(sys.argv) > 1 else "bundled/hopper-replay")
    policy.save("runs/own-loop")
    print("the policy is in runs/own-loop")
