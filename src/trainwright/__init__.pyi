from trainwright.api import explain as explain
from trainwright.api import load_recipe as load_recipe
from trainwright.api import open_artifact as open_artifact
from trainwright.api import plan as plan
from trainwright.api import recommend as recommend
from trainwright.api import run as run
from trainwright.api import sweep as sweep
from trainwright.artifact.store import Artifact as Artifact
from trainwright.core.errors import DataError as DataError
from trainwright.core.errors import DoesNotFit as DoesNotFit
from trainwright.core.errors import Interrupted as Interrupted
from trainwright.core.errors import MachineError as MachineError
from trainwright.core.errors import RecipeError as RecipeError
from trainwright.core.errors import RecipeErrors as RecipeErrors
from trainwright.core.errors import TrainingError as TrainingError
from trainwright.core.errors import TrainwrightError as TrainwrightError
from trainwright.planner.explain.formula import Explanation as Explanation
from trainwright.planner.plan.sweep import Sweep as Sweep
from trainwright.planner.search.ranking import Recommendation as Recommendation
from trainwright.spec.model import ModelSpec as ModelSpec
from trainwright.spec.plan import Plan as Plan
from trainwright.spec.recipe import Recipe as Recipe

__version__: str
