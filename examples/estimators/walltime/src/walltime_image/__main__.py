"""One JSON message in, one out."""

import sys

from ischeduler.estimators.contract.serve import main
from walltime_image import WalltimeImage

sys.exit(main(WalltimeImage()))
