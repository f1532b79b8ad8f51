"""What only a GPU can show (`make gpu`): gradients, speed, a training that is killed, a sweep, a report."""
