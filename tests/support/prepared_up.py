"""`mitosis` as a prepared program; its first argument is the command line of its agent, as JSON."""

import json
import sys

from mitosis.cli import main
from mitosis.cli.stack import whole_stack

if __name__ == "__main__":
    whole_stack.AGENT = json.loads(sys.argv.pop(1))
    main()
