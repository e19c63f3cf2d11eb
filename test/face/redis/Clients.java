import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.jedis4.JedisLockProvider;
import redis.clients.jedis.JedisPool;

/** ShedLock, for test/face/redis/clients.test.ts. */
public class Clients {
  static LockConfiguration of(String name, int most, int least) {
    return new LockConfiguration(Instant.now(), name, Duration.ofSeconds(most), Duration.ofMillis(least));
  }

  public static void main(String[] args) {
    try (JedisPool pool = new JedisPool("127.0.0.1", Integer.parseInt(args[0]))) {
      JedisLockProvider provider = new JedisLockProvider(pool, "test");
      Optional<SimpleLock> lock = provider.lock(of("nightly", 60, 0));
      System.out.println("locked " + lock.isPresent());
      System.out.println("second " + provider.lock(of("nightly", 60, 0)).isPresent());
      Optional<SimpleLock> extended = lock.get().extend(Duration.ofSeconds(60), Duration.ofMillis(0));
      System.out.println("extended " + extended.isPresent());
      extended.get().unlock();
      Optional<SimpleLock> again = provider.lock(of("nightly", 60, 50_000));
      System.out.println("again " + again.isPresent());
      again.get().unlock();
      System.out.println("kept " + !provider.lock(of("nightly", 60, 0)).isPresent());
    }
  }
}
